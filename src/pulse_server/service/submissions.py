"""Submits: store new jobs, many requests in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulse_server.base.errors import PulseError
from pulse_server.base.loops import lease_clock
from pulse_server.base.sharing import GroupCommit
from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.new_jobs import NewJob, Submitted, UniformJobs, kinds
from pulse_server.jobs.store import PostgresJobRepo

# Rows per statement: enough to spread the cost of a commit, few enough that the statement stays at ~25 ms.
SUBMIT_BATCH = 1000
# Two statements in flight keep the database busy while this process prepares the next batch.
SUBMIT_SLOTS = 2


class Submissions:
    def __init__(
        self,
        repo: PostgresJobRepo,
        hub: Hub,
        publisher: Publisher,
        *,
        grouping: type[GroupCommit[Any, Any]] = GroupCommit,
    ) -> None:
        self._repo = repo
        self._hub = hub
        self._publisher = publisher
        self._commits: GroupCommit[NewJob, Submitted | PulseError] = grouping(
            self._insert, slots=SUBMIT_SLOTS, limit=SUBMIT_BATCH, size_of=_size, size_of_all=_size_of_all
        )

    async def submit(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert the jobs and answer for each, in order. A job answered as submitted is durable."""
        return await self._commits.add_all(jobs)

    async def _insert(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        self._publisher.batch_sent("submit", len(jobs))
        sent_at = lease_clock()
        answers: Sequence[Submitted | PulseError] | None = None
        if any(job.unique is not None for job in kinds(jobs)):
            answers = await self._insert_unique(jobs)
        else:
            answers = await self._hub.hand_over(jobs)
        if answers is None:
            answers = await self._repo.insert_jobs(jobs)
        self._publisher.submitted(jobs, answers, lease_clock() - sent_at)
        return answers

    async def _insert_unique(self, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
        """Insert jobs, some with a unique key. One statement for each kind."""
        unique = [job for job in jobs if job.unique is not None]
        plain = [job for job in jobs if job.unique is None]
        rest = iter(await self._repo.insert_jobs(plain) if plain else ())
        of_unique = iter(await self._repo.insert_rich_jobs(unique))
        return [next(rest if job.unique is None else of_unique) for job in jobs]


def _size(job: NewJob) -> int:
    """About how many bytes the job adds to a statement."""
    if job.metadata is None:
        return len(job.payload)
    return len(job.payload) + sum(len(key) + len(value) for key, value in job.metadata.items())


def _size_of_all(jobs: Sequence[NewJob]) -> int:
    if isinstance(jobs, UniformJobs):
        return sum(map(len, jobs.payloads)) + len(jobs) * _size(jobs.template)
    return sum(map(_size, jobs))
