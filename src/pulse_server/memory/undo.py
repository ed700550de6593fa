"""The undo of an operator's actions on jobs, in memory."""

from __future__ import annotations

from collections.abc import Collection

from pulse_server.domain.jobs import Job
from pulse_server.domain.status import JobStatus
from pulse_server.domain.undo import ActedOn, Restored
from pulse_server.domain.unique import Scope
from pulse_server.memory.unique_jobs import InMemoryUniqueJobs

# The fields that an undo restores.
_UNDOABLE = (
    *("status", "ready", "next_run_at", "start_by", "finished_at", "finished_by", "last_error"),
    *("error_group", "max_attempts", "crashes", "unique_scope", "waits_for"),
)
# Those that a settle changes when it cancels a job or brings it back.
_DECIDED_BY_WORKFLOW = (
    *("status", "ready", "next_run_at", "start_by", "finished_at", "last_error", "unique_scope"),
)


class InMemoryUndo(InMemoryUniqueJobs):
    def remember(self, action: str | None, before: Job | None, after: Job) -> Job:
        """Keep the job as it was before the action. None: it cannot be undone. Returns `after`."""
        self.undo.pop(after.id, None)
        if action is not None:
            self.undo[after.id] = (action, before, after)
        return after

    async def jobs_of_action(self, action: str, *, after: str | None, limit: int) -> list[ActedOn]:
        self.answer("jobs_of_action")
        ids = sorted(job_id for job_id, (known, _, _) in self.undo.items() if known == action)
        found = [self.jobs[job_id] for job_id in ids if job_id > (after or "") and job_id in self.jobs]
        return [ActedOn(job.id, self._is_as_left(job), self._was_running(job)) for job in found[:limit]]

    async def undo_jobs(self, job_ids: Collection[str], action: str) -> list[Restored]:
        self.answer("undo_jobs")
        undone = []
        for job in self.existing(job_ids):
            known, before, after = self.undo.get(job.id, ("", None, job))
            if known != action or before is None or not self._is_as_left(job):
                continue
            if before.finished_at is None and after.finished_at is None:
                restored = self.put(job, priority=before.priority)
            elif before.finished_at is not None or not await self.unique_holders([job.id], list(Scope)):
                kept = _DECIDED_BY_WORKFLOW if self._goes_on_waiting(job, before) else ()
                restored = self.put(
                    job, **{name: getattr(before, name) for name in _UNDOABLE if name not in kept}
                )
            else:
                continue
            undone.append(Restored(restored, job.status))
            del self.undo[job.id]
        self.settle()
        return undone

    def _goes_on_waiting(self, job: Job, before: Job) -> bool:
        """Whether its workflow had canceled the job before the retry, and judges it again."""
        found = self.node_of(job)
        return found is not None and found[1].was_dropped and before.finished_at is not None

    def _was_running(self, job: Job) -> bool:
        _, before, after = self.undo[job.id]
        return before is not None and before.locked_by is not None and after.status is JobStatus.CANCELED

    def _is_as_left(self, job: Job) -> bool:
        _, before, after = self.undo[job.id]
        if before is None or self._was_running(job):
            return False
        if before.finished_at is None and after.finished_at is None:
            return job.finished_at is None and job.priority == after.priority
        return job.status is after.status and job.run == after.run
