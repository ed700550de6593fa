"""Taking jobs in."""

from __future__ import annotations

from collections.abc import Sequence

from pulse import failpoints
from pulse_server import tuning
from pulse_server.domain.errors import PulseError, Unavailable
from pulse_server.domain.jobs import NewJob, Submitted
from pulse_server.domain.status import JobStatus
from pulse_server.repos.jobs import JobRepo
from pulse_server.service.group_commit import GroupCommit
from pulse_server.service.handover import Handover
from pulse_server.service.signals import Signals
from pulse_server.service.transitions import Transitions, changed
from pulse_server.telemetry.metrics import Metrics


class Submissions:
    def __init__(
        self,
        repo: JobRepo,
        signals: Signals,
        metrics: Metrics | None = None,
        transitions: Transitions | None = None,
        handover: Handover | None = None,
    ) -> None:
        self._repo = repo
        self._handover = handover
        self._signals = signals
        self._metrics = metrics or Metrics()
        self._transitions = transitions or Transitions()
        self._commits: GroupCommit[NewJob, Submitted | PulseError] = GroupCommit(
            self._insert, lanes=tuning.SUBMIT_LANES, limit=tuning.SUBMIT_BATCH, size_of=_size
        )
        self._commits.on_commit(lambda size: self._metrics.batch_size.observe("submit", value=size))

    @failpoints.after("submit.answered", Unavailable)
    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted | PulseError]:
        """Insert the jobs and answer for each, in order. What was answered as submitted is durable."""
        return await self._commits.add_all(jobs)

    async def _insert(self, jobs: list[NewJob]) -> list[Submitted | PulseError]:
        answers = await self._handover.try_insert(jobs) if self._handover else None
        if answers is None:
            answers = await self._repo.insert_jobs(jobs)
        inserted = [
            (job, answer.is_taken)
            for job, answer in zip(jobs, answers, strict=True)
            if isinstance(answer, Submitted) and not answer.duplicate
        ]
        taken = {job.id for job, is_taken in inserted if is_taken}
        self._metrics.count_topics(self._metrics.submitted, [job.topic for job, _ in inserted])
        self._transitions.tell(
            lambda: [
                changed(job.id, job.topic, JobStatus.PENDING) for job, is_taken in inserted if not is_taken
            ]
        )
        # For those too that were there already: whoever stored them may have died before it woke anybody.
        self._signals.ready({job.topic for job in jobs if job.may_be_ready and job.id not in taken})
        return answers


def _size(job: NewJob) -> int:
    """About how many bytes the job adds to a statement."""
    if job.metadata is None:
        return len(job.payload)
    return len(job.payload) + sum(len(key) + len(value) for key, value in job.metadata.items())
