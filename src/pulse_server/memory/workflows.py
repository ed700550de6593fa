"""The port to workflows, in memory. ADR-0077"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from pulse_server.domain.errors import WorkflowExists
from pulse_server.domain.ids import new_id
from pulse_server.domain.jobs import Claim, Job
from pulse_server.domain.status import LIVE, JobStatus
from pulse_server.domain.workflows import (
    Addition,
    CanceledWorkflow,
    NewNode,
    Settled,
    Stored,
    WorkflowBounds,
)
from pulse_server.memory.rows import WITHOUT_END, new_row
from pulse_server.memory.workflow_reads import InMemoryWorkflowReads
from pulse_server.memory.workflow_rows import NodeRow, WorkflowRow

_UNSUCCESSFUL = (JobStatus.DEAD_LETTERED, JobStatus.CANCELED)


class InMemoryWorkflowRepo(InMemoryWorkflowReads):
    """Workflows over the jobs in `jobs`, which settles them with each end of a job."""

    async def store_workflow(
        self, workflow_id: str, name: str, digest: bytes, nodes: Sequence[NewNode]
    ) -> Stored:
        self._jobs.answer("store_workflow")
        if (known := self._workflows.get(workflow_id)) is not None:
            ids = [node.job_id for node in known.nodes[: len(nodes)]]
            return Stored(False, known.digest == digest, ids)
        if taken := self._taken(nodes):
            raise WorkflowExists(
                f"Other jobs hold the unique keys of {', '.join(sorted(taken))}: "
                "nothing of the workflow was stored."
            )
        workflow = WorkflowRow(workflow_id, name, digest, None, self._clock.now())
        self._workflows[workflow_id] = workflow
        for node in nodes:
            self._insert(workflow, node, is_held=bool(node.after))
        _connect(workflow, nodes)
        return Stored(True, True, [node.job_id for node in workflow.nodes])

    async def add_to_workflow(
        self, claim: Claim, nodes: Sequence[NewNode], bounds: WorkflowBounds
    ) -> Addition:
        self._jobs.answer("add_to_workflow")
        job = self._jobs.jobs.get(claim.job_id)
        workflow = self._workflows.get(job.workflow_id or "") if job else None
        workflow_id = workflow.id if workflow else None
        if workflow is not None and workflow.canceled_at is not None:
            return Addition("canceled", (), workflow_id, [], 0)
        if job is None or self._jobs.held_by(claim) is None:
            return Addition("lost", (), workflow_id, [], 0)
        started = workflow or self._begin(job)
        new = [node for node in nodes if started.find(node.name) is None]
        problem, names = _problem_of(started, new, bounds, self._taken(new), self._jobs.jobs)
        if problem is not None:
            return Addition(problem, names, started.id, [], 0)
        if workflow is None:
            self._workflows[started.id] = started
            self._jobs.put(job, workflow_id=started.id)
        added = [self._insert(started, node, is_held=True, schedule_id=job.schedule_id) for node in new]
        _connect(started, new)
        self._jobs.settle(self._jobs.jobs[node.job_id] for node in added)
        ids = [found.job_id for node in nodes if (found := started.find(node.name)) is not None]
        return Addition(None, (), started.id, ids, len(new))

    async def noticed_workflows(self, limit: int) -> list[str]:
        """None: each change settles its workflow at once."""
        return []

    async def settle_workflows(
        self, *, workflows: int, notices: int, rounds: int, jobs: int, wanted: Sequence[str] | None = None
    ) -> Settled:
        """Report the changes since the last call. The bounds are for a store with a loop."""
        self._jobs.answer("settle_workflows")
        self._jobs.settle()
        return self._jobs.take_settled()

    async def cancel_workflow(self, workflow_id: str, reason: str) -> CanceledWorkflow:
        self._jobs.answer("cancel_workflow")
        workflow = self._workflows.get(workflow_id)
        unended = [job for job in self._jobs_of(workflow) if job.status in LIVE]
        if workflow is None or not unended:
            return CanceledWorkflow(False, [], [])
        workflow.canceled_at = workflow.canceled_at or self._clock.now()
        canceled = await self._jobs.cancel_jobs([job.id for job in unended if not job.held], reason)
        self._jobs.settle(job for job in unended if job.held)
        return CanceledWorkflow(True, canceled, [])

    async def retry_workflow(self, workflow_id: str, attempts: int, *, at_once: bool = False) -> list[Job]:
        self._jobs.answer("retry_workflow")
        workflow = self._workflows.get(workflow_id)
        if workflow is None:
            return []
        was_canceled, workflow.canceled_at = workflow.canceled_at is not None, None
        dropped = {node.job_id for node in workflow.nodes if node.dropped}
        unsuccessful = [
            job.id for job in self._jobs_of(workflow) if job.status in _UNSUCCESSFUL and job.id not in dropped
        ]
        if was_canceled:
            self._bring_back(workflow)
        # It settles them all: no job finds a parent ended that comes back, too.
        retried = await self._jobs.retry_jobs(unsuccessful, attempts, at_once=at_once)
        self._jobs.settle(job for job in self._jobs_of(workflow) if was_canceled and job.held)
        return retried

    def _bring_back(self, workflow: WorkflowRow) -> None:
        for node in workflow.nodes:
            job = self._jobs.jobs.get(node.job_id)
            if node.dropped and job is not None and job.held and job.status is JobStatus.CANCELED:
                if not self._jobs.stays_without_its_key(job):
                    self._jobs.bring_back(job)
                node.dropped = None

    def _begin(self, job: Job) -> WorkflowRow:
        """A workflow with this job, which is not stored yet. It has the name of its schedule or topic."""
        schedule = self._jobs.schedules.get(job.schedule_id or "")
        name = (schedule and schedule.name) or job.topic
        workflow = WorkflowRow(str(uuid4()), name, b"", job.schedule_id, self._clock.now())
        workflow.nodes.append(NodeRow(1, job.id, job.topic, job.topic))
        return workflow

    def _insert(
        self, workflow: WorkflowRow, node: NewNode, *, is_held: bool, schedule_id: str | None = None
    ) -> NodeRow:
        """Insert a job. One that waits has no time of its own before it waits no longer."""
        new = node.job._replace(id=new_id(), schedule_id=schedule_id)
        if is_held:
            new = new._replace(run_at=WITHOUT_END, delay=None, start_within=None)
        row = new_row(new, self._clock.now())
        self._jobs.jobs[new.id] = replace(row, workflow_id=workflow.id, held=is_held)
        placed = NodeRow(
            number=len(workflow.nodes) + 1,
            job_id=new.id,
            name=node.name,
            topic=new.topic,
            condition=node.when,
            run_at=node.job.run_at,
            delay=node.job.delay,
            start_within=node.job.start_within,
        )
        workflow.nodes.append(placed)
        return placed

    def _taken(self, nodes: Sequence[NewNode]) -> list[str]:
        """The names of jobs whose unique keys other jobs hold."""
        return [
            node.name
            for node in nodes
            if node.job.unique is not None
            and self._jobs.holder_of(node.job.topic, node.job.unique) is not None
        ]


def _connect(workflow: WorkflowRow, nodes: Sequence[NewNode]) -> None:
    """Let the new jobs wait for the jobs in `after`, and the jobs in `before` for them."""
    rows = {row.name: row for row in workflow.nodes}
    for node in nodes:
        for parent in node.after:
            rows[node.name].wait_for(rows[parent])
        for child in node.before:
            rows[child].wait_for(rows[node.name])


def _problem_of(
    workflow: WorkflowRow,
    new: Sequence[NewNode],
    bounds: WorkflowBounds,
    taken: Sequence[str],
    jobs: Mapping[str, Job],
) -> tuple[str | None, Sequence[str]]:
    """The problem of the addition, as in `Addition`, and the names of the jobs that cause it.

    `taken` has the jobs whose unique keys other jobs hold.
    """
    own = {node.name for node in new}
    parents = sorted({name for node in new for name in node.after} - own)
    children = sorted({name for node in new for name in node.before})
    known = {row.name: row for row in workflow.nodes}
    edges = workflow.edges + sum(len(node.after) + len(node.before) for node in new)
    if unknown := [name for name in parents + children if name not in known]:
        return "unknown", unknown
    if late := [name for name in children if not _waits(jobs.get(known[name].job_id))]:
        return "late", late
    below = _below([known[name] for name in children])
    if circular := [name for name in parents if known[name] in below]:
        return "cycle", circular
    if taken:
        return "taken", taken
    if new and (len(workflow.nodes) + len(new) > bounds.jobs or edges > bounds.edges):
        return "many", ()
    return None, ()


def _waits(job: Job | None) -> bool:
    return job is not None and job.held and job.status is JobStatus.PENDING


def _below(rows: Sequence[NodeRow]) -> set[NodeRow]:
    """The rows, and all that wait for them."""
    found: set[NodeRow] = set()
    left = list(rows)
    while left:
        row = left.pop()
        if row not in found:
            found.add(row)
            left += row.children
    return found
