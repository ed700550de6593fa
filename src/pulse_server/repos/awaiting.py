"""The port for clients that wait for jobs. Every method may raise Unavailable."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from pulse_server.domain.jobs import Job


class FinishedJobs(NamedTuple):
    """Finished jobs without their payloads, and the ids of the other requested jobs."""

    jobs: list[Job]
    left_over: set[str]
    """Finished, but over the byte limit."""
    unfinished: set[str]


class AwaitingRepo(Protocol):
    async def finished_jobs(self, job_ids: Collection[str], most_bytes: int) -> FinishedJobs:
        """Return finished jobs, up to `most_bytes`, at least one."""
        ...
