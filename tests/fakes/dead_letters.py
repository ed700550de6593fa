"""Groups of dead letters, over the jobs in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pulse_server.domain.dead_letters import DeadLetterGroup, DeadLetterGroups
from pulse_server.domain.jobs import Job
from pulse_server.domain.status import JobStatus
from tests.fakes.jobs import InMemoryJobRepo


class InMemoryDeadLetterRepo:
    def __init__(self, jobs: InMemoryJobRepo) -> None:
        self._jobs = jobs
        self.counts = 0
        """The number of calls."""

    async def list_dead_letter_groups(self, topic: str | None, limit: int) -> DeadLetterGroups:
        self.counts += 1
        members: dict[tuple[str, str], list[Job]] = {}
        for job in self._jobs.jobs.values():
            if job.status is JobStatus.DEAD_LETTERED and topic in (None, job.topic):
                members.setdefault((job.topic, job.error_group), []).append(job)
        groups = [_group(jobs) for _, jobs in sorted(members.items())]
        groups.sort(key=lambda group: group.last_at, reverse=True)
        return DeadLetterGroups(tuple(groups[:limit]), len(groups))


def _group(jobs: list[Job]) -> DeadLetterGroup:
    ordered = sorted(jobs, key=lambda job: (_died_at(job), job.submitted_at, job.id))
    sample = replace(ordered[-1], payload=b"", history=())
    return DeadLetterGroup(len(jobs), _died_at(ordered[0]), _died_at(ordered[-1]), sample)


def _died_at(job: Job) -> datetime:
    assert job.finished_at is not None
    return job.finished_at
