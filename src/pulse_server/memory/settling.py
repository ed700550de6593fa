"""Jobs of workflows that start, or are canceled, because the jobs that they wait for ended. ADR-0077

Postgres has a loop for it. In memory, the call that ends a job also settles its workflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pulse_server.domain.jobs import Job, Level
from pulse_server.domain.status import JobStatus
from pulse_server.domain.unique import Scope
from pulse_server.domain.workflows import Settled
from pulse_server.memory.rows import WITHOUT_END
from pulse_server.memory.table import JobTable
from pulse_server.memory.workflow_rows import NodeRow, Unreported, WorkflowRow

_FAILED_PARENT = "A job that it waited for did not succeed."
_NOT_NEEDED = "Not needed: no job that it waited for failed."
_CANCELED = "Its workflow was canceled."
_KEY_IS_HELD = "Another job holds its unique key."


class Settling(JobTable):
    """The jobs table with the step that settles workflows."""

    def node_of(self, job: Job) -> tuple[WorkflowRow, NodeRow] | None:
        """The job's workflow, and the job there."""
        workflow = self.workflows.get(job.workflow_id or "")
        return (
            None
            if workflow is None
            else (workflow, next(node for node in workflow.nodes if node.job_id == job.id))
        )

    def settle(self, also: Iterable[Job] = ()) -> None:
        """Bring workflows in step with jobs that ended or came back, and with the jobs in `also`."""
        self.notices |= dict.fromkeys(job.id for job in also)
        locked: list[str] = []
        while self.notices:
            seen = [self.jobs[job_id] for job_id in self.notices if job_id in self.jobs]
            self.notices.clear()
            # All outcomes before the first verdict: a job must not start because its parent, which
            # came back with it, still counts as ended.
            due: dict[str, tuple[WorkflowRow, NodeRow]] = {}
            for job in seen:
                if (found := self.node_of(job)) is not None:
                    workflow, node = found
                    children = node.children if self._count(workflow, node, job) else []
                    due |= {one.job_id: (workflow, one) for one in ([node] if job.held else []) + children}
            for job_id, (workflow, node) in due.items():
                if job_id in self.locked:
                    locked.append(job_id)
                elif job_id in self.jobs:
                    self._judge(workflow, node, self.jobs[job_id])
        self.notices |= dict.fromkeys(locked)

    def _count(self, workflow: WorkflowRow, node: NodeRow, job: Job) -> bool:
        """Store how the job ended. Returns whether that is new."""
        before, node.outcome = node.outcome, _outcome(node, job)
        if before == node.outcome:
            return False
        self.unreported.workflows[workflow.id] = workflow
        is_over = all(one.outcome is not None for one in workflow.nodes)
        workflow.finished_at = self.clock.now() if is_over else None
        return True

    def _judge(self, workflow: WorkflowRow, node: NodeRow, job: Job) -> None:
        """Let the job start, cancel it, or bring it back. A job that does not wait is left alone."""
        verdict = "dropped" if workflow.canceled_at is not None else node.verdict()
        was_dropped, is_live = node.dropped, job.finished_at is None
        is_final = verdict in ("dropped", "skipped")
        if not job.held:
            return
        if is_live and is_final:
            error = (
                _CANCELED if workflow.canceled_at else _NOT_NEEDED if verdict == "skipped" else _FAILED_PARENT
            )
            self.finish(job, JobStatus.CANCELED)
            self.put(self.jobs[job.id], last_error=error, next_run_at=WITHOUT_END, start_by=None)
            self.unreported.dropped.setdefault(job.topic, []).append(job.id)
        elif not is_live and was_dropped and not is_final and self.stays_without_its_key(job):
            pass
        elif verdict == "ready" and (is_live or was_dropped):
            self._open(node, job if was_dropped is None else replace(job, last_error=None))
        elif not is_live and was_dropped and verdict == "waiting":  # an operator's cancel stays
            self.bring_back(job)
        elif was_dropped is None or verdict == was_dropped:
            return
        node.dropped = verdict if is_final else None
        if was_dropped and node.dropped and was_dropped != node.dropped:
            self.notices[job.id] = None

    def _open(self, node: NodeRow, job: Job) -> None:
        now = self.clock.now()
        is_due = node.run_at <= now if node.run_at is not None else node.delay is None
        due = max(now, node.run_at or (now + node.delay if node.delay else now))
        opened = self.put(
            job,
            status=JobStatus.PENDING,
            finished_at=None,
            unique_scope=job.unique_scope if job.finished_at is None else _scope_of_returned(job),
            held=False,
            ready=is_due,
            next_run_at=due,
            start_by=None if node.start_within is None else due + node.start_within,
        )
        if is_due:
            self.unreported.ready.append(opened)

    def stays_without_its_key(self, job: Job) -> bool:
        """Leave a job canceled if another job holds its key now. Like one that an operator canceled, it
        waits again when it is retried."""
        if self.may_have_its_key(job):
            return False
        self.put(job, finished_at=self.clock.now(), last_error=_KEY_IS_HELD)
        return True

    def bring_back(self, job: Job) -> None:
        self.put(
            job,
            status=JobStatus.PENDING,
            finished_at=None,
            last_error=None,
            next_run_at=WITHOUT_END,
            unique_scope=_scope_of_returned(job),
        )

    def take_settled(self) -> Settled:
        """The changes since the last call."""
        record, self.unreported = self.unreported, Unreported()
        oldest: dict[tuple[str, int], Job] = {}
        for job in record.ready:
            first = oldest.setdefault((job.topic, job.priority), job)
            oldest[job.topic, job.priority] = min(first, job, key=lambda one: one.submitted_at)
        now = self.clock.now()
        levels = [
            Level(topic, priority, (now - job.submitted_at).total_seconds())
            for (topic, priority), job in oldest.items()
        ]
        finished = [workflow.id for workflow in record.workflows.values() if workflow.finished_at is not None]
        return Settled(levels, len(record.ready), record.dropped, finished, bool(self.notices))


def _scope_of_returned(job: Job) -> str | None:
    """A key that is unique while its job waits stays free, as after a retry."""
    return job.unique_scope if job.unique_scope == Scope.LIVE else None


def _outcome(node: NodeRow, job: Job) -> str | None:
    if job.status is JobStatus.COMPLETED:
        return "succeeded"
    if job.status is JobStatus.DEAD_LETTERED:
        return "failed"
    if job.status is JobStatus.CANCELED:
        return "skipped" if node.dropped == "skipped" else "canceled"
    return None
