"""The reads of workflows, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pulse_server.domain.jobs import Job, PageKey
from pulse_server.domain.status import JobStatus
from pulse_server.domain.workflows import Node, Workflow
from pulse_server.memory.jobs import InMemoryJobRepo
from pulse_server.memory.rows import WITHOUT_END
from pulse_server.memory.workflow_rows import NodeRow, WorkflowRow


class InMemoryWorkflowReads:
    def __init__(self, jobs: InMemoryJobRepo) -> None:
        self._jobs = jobs
        self._clock = jobs.clock
        self._workflows = jobs.workflows

    async def get_workflow(self, workflow_id: str) -> Workflow | None:
        self._jobs.answer("get_workflow")
        workflow = self._workflows.get(workflow_id)
        return workflow.as_read() if workflow else None

    async def list_workflows(
        self, name: str | None, status: str | None, *, limit: int, after: PageKey | None
    ) -> list[Workflow]:
        self._jobs.answer("list_workflows")
        found = [
            workflow
            for workflow in (row.as_read() for row in self._workflows.values())
            if name in (None, workflow.name)
            and status in (None, workflow.status)
            and (after is None or (workflow.submitted_at, workflow.id) < (after.moment, after.id))
        ]
        found.sort(key=lambda workflow: (workflow.submitted_at, workflow.id), reverse=True)
        return found[:limit]

    async def list_workflow_jobs(
        self,
        workflow_id: str,
        *,
        child: str | None,
        names: Sequence[str] | None,
        unended: bool,
        results: bool,
        after: int,
        limit: int,
    ) -> list[Node]:
        self._jobs.answer("list_workflow_jobs")
        workflow = self._workflows.get(workflow_id)
        rows = workflow.nodes[after:] if workflow else []
        if workflow is not None and child is not None:
            parents = [parent for node in workflow.nodes if node.job_id == child for parent in node.parents]
            rows = [row for row in rows if row in parents]
        rows = [
            row
            for row in rows
            if (names is None or row.name in names) and (not unended or row.outcome is None)
        ]
        return [self._as_read(row, with_result=results) for row in rows[:limit]]

    async def find_workflow_job(self, job_id: str) -> str | None:
        self._jobs.answer("find_workflow_job")
        nodes = ((workflow.id, node) for workflow in self._workflows.values() for node in workflow.nodes)
        return next((workflow_id for workflow_id, node in nodes if node.job_id == job_id), None)

    def _jobs_of(self, workflow: WorkflowRow | None) -> list[Job]:
        nodes = workflow.nodes if workflow else []
        return [self._jobs.jobs[node.job_id] for node in nodes if node.job_id in self._jobs.jobs]

    def _as_read(self, row: NodeRow, *, with_result: bool) -> Node:
        node = Node(
            number=row.number,
            job_id=row.job_id,
            name=row.name,
            topic=row.topic,
            condition=row.condition.value,
            dropped=row.dropped,
            outcome=row.outcome,
            unended=row.unended,
            status=None,
            held=None,
            attempts=None,
            started_at=None,
            finished_at=None,
            next_run_at=None,
            waits_for=None,
            last_error=None,
            result=None,
            parents=sorted(parent.number for parent in row.parents),
        )
        job = self._jobs.jobs.get(row.job_id)
        if job is None:
            return node
        is_timed = not job.held and job.finished_at is None and job.next_run_at != WITHOUT_END
        return replace(
            node,
            status=job.status.value,
            held=job.held or None,
            attempts=job.attempts,
            started_at=job.started_at,
            finished_at=job.finished_at,
            next_run_at=job.next_run_at if is_timed else None,
            waits_for=job.waits_for if job.status is JobStatus.RETRYING and not job.ready else None,
            last_error=job.last_error,
            result=job.result if with_result else None,
        )
