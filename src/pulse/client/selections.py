"""The verbs that count many jobs and act on them, batch by batch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from typing import TypeVar, Unpack

from pulse.client.caller import Caller
from pulse.client.filters import JobFilter, job_filter
from pulse.models.selections import Batch, JobCount
from pulse.models.times import time_of
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.messages import message

Request = TypeVar("Request")

# No batch is repeatable: what a lost answer had counted would not be counted again.


class SelectionVerbs:
    """What a `Pulse` can do with many jobs at once.

    The `…_batch` verbs take one step, of 500 jobs at the most and the newest first; the `…_matching` verbs
    take all of them and yield how many it were so far. Whoever stops in between leaves the rest as it is.
    `timeout` bounds each step.
    """

    _caller: Caller

    async def count_jobs(self, *, timeout: timedelta | None = None, **which: Unpack[JobFilter]) -> JobCount:
        """Count the jobs that match; without a status, those that are not finished.

        Completed jobs are not counted: there may be millions. Give `counted_at` as `before` to act on what
        was counted, and on nothing that came later.
        """
        request = pb.CountJobsRequest(filter=job_filter(**which))
        response = await self._caller.call(lambda stub: stub.CountJobs, request, timeout)
        return JobCount(response.count, time_of(response, "counted_at"))

    async def cancel_batch(
        self,
        *,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Cancel the newest jobs that match; without a status, whatever is not finished."""
        request = _step(pb.CancelJobsRequest, which, cursor, limit, reason=reason)
        response = await self._caller.call(lambda stub: stub.CancelJobs, request, timeout, repeatable=False)
        return Batch(response.canceled, response.next_page_token or None, response.locked)

    async def retry_batch(
        self,
        *,
        attempts: int | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Bring back the newest jobs that match. Status: DEAD_LETTERED or CANCELED."""
        request = _step(pb.RetryJobsRequest, which, cursor, limit, attempts=attempts)
        response = await self._caller.call(lambda stub: stub.RetryJobs, request, timeout, repeatable=False)
        return Batch(response.retried, response.next_page_token or None, response.locked)

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
        """Give the newest jobs that match another priority; without a status, whatever is not finished.

        The server logs the reason, with who gave it.
        """
        request = _step(pb.PrioritizeJobsRequest, which, cursor, limit, priority=priority, reason=reason)
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
        """Delete the newest jobs that match. Status: COMPLETED, DEAD_LETTERED or CANCELED."""
        request = _step(pb.DeleteJobsRequest, which, cursor, limit)
        response = await self._caller.call(lambda stub: stub.DeleteJobs, request, timeout, repeatable=False)
        return Batch(response.deleted, response.next_page_token or None, response.locked)

    def cancel_matching(
        self, *, reason: str = "", timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> AsyncGenerator[int, None]:
        """Cancel all jobs that match, batch by batch. Yields how many it were so far."""
        return _all_of(
            lambda cursor: self.cancel_batch(reason=reason, cursor=cursor, timeout=timeout, **which)
        )

    def retry_matching(
        self, *, attempts: int | None = None, timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> AsyncGenerator[int, None]:
        """Bring back all jobs that match, batch by batch. Yields how many it were so far."""
        return _all_of(
            lambda cursor: self.retry_batch(attempts=attempts, cursor=cursor, timeout=timeout, **which)
        )

    def prioritize_matching(
        self,
        priority: int,
        *,
        reason: str = "",
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> AsyncGenerator[int, None]:
        """Give all jobs that match another priority, batch by batch. Yields how many it were so far."""
        return _all_of(
            lambda cursor: self.prioritize_batch(
                priority, reason=reason, cursor=cursor, timeout=timeout, **which
            )
        )

    def delete_matching(
        self, *, timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> AsyncGenerator[int, None]:
        """Delete all jobs that match, batch by batch. Yields how many it were so far."""
        return _all_of(lambda cursor: self.delete_batch(cursor=cursor, timeout=timeout, **which))


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
