"""The verbs for selections: count the jobs that match a filter, and change them batch by batch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar, Unpack

from pulse.checks import message
from pulse.client.caller import Caller
from pulse.client.filters import JobFilter, job_filter
from pulse.models.reading import Reader
from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class JobCount:
    """The number of matching jobs. Pass `counted_at` as `before` to change these jobs and no later ones."""

    count: int
    counted_at: datetime | None


_job_count = Reader(JobCount)


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one batch of an action on many jobs."""

    changed: int
    next_cursor: str | None
    """Pass it to the next batch. None if no matching job is left."""
    locked: int = 0
    """The number of jobs left unchanged because another database session has locked their rows. Try again."""
    held: int = 0
    """The number of jobs that were not retried because another job holds their unique key."""


Request = TypeVar("Request")

# No batch is repeatable: the count of a lost answer would be missing from the total.


class SelectionVerbs:
    """The verbs of a `Pulse` for many jobs at once.

    The `…_batch` verbs change one batch of at most 500 jobs, the newest first. The `…_matching` verbs change
    all matching jobs and yield the running total after each batch; stop iterating to leave the rest as it is.
    `timeout` bounds each batch.
    """

    _caller: Caller

    async def count_jobs(self, *, timeout: timedelta | None = None, **which: Unpack[JobFilter]) -> JobCount:
        """Count the matching jobs. Without a status, count unfinished jobs.

        Completed jobs are not counted: there may be millions. Pass `counted_at` as `before` to change the
        jobs that were counted and no later ones.
        """
        request = pb.CountJobsRequest(filter=job_filter(**which))
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(lambda stub: stub.CountJobs, request, timeout)
        return _job_count(response)

    async def cancel_batch(
        self,
        *,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Cancel the newest matching jobs. Without a status, cancel unfinished jobs."""
        request = _step(pb.CancelJobsRequest, which, cursor, limit, reason=reason)
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(lambda stub: stub.CancelJobs, request, timeout, repeatable=False)
        return Batch(response.canceled, response.next_page_token or None, response.locked)

    async def retry_batch(
        self,
        *,
        attempts: int | None = None,
        fresh: bool = False,
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Retry the newest matching jobs. Status: DEAD_LETTERED or CANCELED.

        Skips a job if another job holds its unique key.
        """
        request = _step(pb.RetryJobsRequest, which, cursor, limit, attempts=attempts, fresh=fresh)
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(lambda stub: stub.RetryJobs, request, timeout, repeatable=False)
        return Batch(response.retried, response.next_page_token or None, response.locked, response.held)

    async def prioritize_batch(
        self,
        priority: int,
        *,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Change the priority of the newest matching jobs. Without a status, of unfinished jobs.

        The server logs the reason and the user.
        """
        request = _step(pb.PrioritizeJobsRequest, which, cursor, limit, priority=priority, reason=reason)
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(
            lambda stub: stub.PrioritizeJobs, request, timeout, repeatable=False
        )
        return Batch(response.prioritized, response.next_page_token or None, response.locked)

    async def delete_batch(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Delete the newest matching jobs. Status: COMPLETED, DEAD_LETTERED or CANCELED."""
        request = _step(pb.DeleteJobsRequest, which, cursor, limit)
        await self._refuse_older_servers(which, timeout)
        response = await self._caller.call(lambda stub: stub.DeleteJobs, request, timeout, repeatable=False)
        return Batch(response.deleted, response.next_page_token or None, response.locked)

    def cancel_matching(
        self, *, reason: str = "", timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> AsyncGenerator[int, None]:
        """Cancel all matching jobs, batch by batch. Yields the running total."""
        return _all_of(
            lambda cursor: self.cancel_batch(reason=reason, cursor=cursor, timeout=timeout, **which)
        )

    def retry_matching(
        self,
        *,
        attempts: int | None = None,
        fresh: bool = False,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> AsyncGenerator[int, None]:
        """Retry all matching jobs, batch by batch. Yields the running total. `fresh` forgets their steps."""
        return _all_of(
            lambda cursor: self.retry_batch(
                attempts=attempts, fresh=fresh, cursor=cursor, timeout=timeout, **which
            )
        )

    def prioritize_matching(
        self,
        priority: int,
        *,
        reason: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> AsyncGenerator[int, None]:
        """Change the priority of all matching jobs, batch by batch. Yields the running total."""
        return _all_of(
            lambda cursor: self.prioritize_batch(
                priority, reason=reason, cursor=cursor, timeout=timeout, **which
            )
        )

    def delete_matching(
        self, *, timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> AsyncGenerator[int, None]:
        """Delete all matching jobs, batch by batch. Yields the running total."""
        return _all_of(lambda cursor: self.delete_batch(cursor=cursor, timeout=timeout, **which))

    async def _refuse_older_servers(self, which: JobFilter, timeout: timedelta | None) -> None:
        """Raises an error if the server does not know lanes: it would take the jobs of all lanes."""
        if which.get("lane") is not None:
            request = message(pb.ListLanesRequest, topic=which.get("topic") or "", limit=1)
            await self._caller.call(lambda stub: stub.ListLanes, request, timeout)


def _step(
    kind: Callable[..., Request], which: JobFilter, cursor: str | None, limit: int | None, **fields: object
) -> Request:
    return message(kind, filter=job_filter(**which), limit=limit or 0, page_token=cursor or "", **fields)


async def _all_of(step: Callable[[str | None], Awaitable[Batch]]) -> AsyncGenerator[int, None]:
    done, cursor = 0, None
    while True:
        batch = await step(cursor)
        done, cursor = done + batch.changed, batch.next_cursor
        yield done
        if cursor is None:
            return
