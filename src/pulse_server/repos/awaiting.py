"""The port of jobs that clients wait for. Every method may raise Unavailable."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from pulse_server.domain.jobs import Job


class FinishedJobs(NamedTuple):
    """Finished jobs without their payloads, and the ids of others that were there at the same moment."""

    jobs: list[Job]
    left_over: set[str]
    """Finished, and did not fit."""
    unfinished: set[str]


class AwaitingRepo(Protocol):
    async def finished_jobs(self, job_ids: Collection[str], most_bytes: int) -> FinishedJobs:
        """Return the jobs that have finished, as many as fit into so many bytes, at least one."""
        ...
