"""The verbs for many jobs at once, and for the whole at a glance."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from pulse.blocking import Blocking
from pulse.calling import Caller, message
from pulse.errors import InvalidArgument
from pulse.models import time_of
from pulse.overview import Batch, JobCount, TopicInfo, Transitions, WorkerInfo, topic_info, worker_info
from pulse.selecting import JobFilter, job_filter
from pulse.v1 import pulse_pb2 as pb
from pulse.watching import watched

if TYPE_CHECKING:
    from pulse.client import Pulse


class Overseeing:
    """What a `Pulse` can do with many jobs, and what it sees of topics and workers."""

    _caller: Caller

    async def find_jobs(self, prefix: str, *, timeout: timedelta | None = None) -> list[str]:
        """Return the ids that begin like this, ten at the most; dashes may be left out."""
        request = message(pb.FindJobsRequest, prefix=prefix)
        response = await self._caller.call(lambda stub: stub.FindJobs, request, timeout)
        return list(response.job_ids)

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
        """Cancel the newest jobs that match, 500 at the most; without a status, whatever is not finished."""
        request = message(
            pb.CancelJobsRequest,
            filter=job_filter(**which),
            reason=reason,
            limit=limit or 0,
            page_token=cursor or "",
        )
        # Not repeatable: what a lost answer had counted would not be counted again.
        response = await self._caller.call(lambda stub: stub.CancelJobs, request, timeout, repeatable=False)
        return Batch(response.canceled, response.next_page_token or None)

    async def retry_batch(
        self,
        *,
        attempts: int | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Bring back the newest jobs that match, 500 at the most. Status: DEAD_LETTERED or CANCELED."""
        request = message(
            pb.RetryJobsRequest,
            filter=job_filter(**which),
            attempts=attempts,
            limit=limit or 0,
            page_token=cursor or "",
        )
        response = await self._caller.call(lambda stub: stub.RetryJobs, request, timeout, repeatable=False)
        return Batch(response.retried, response.next_page_token or None)

    async def cancel_matching(
        self, *, reason: str = "", timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> AsyncGenerator[int, None]:
        """Cancel all jobs that match, batch by batch. Yields how many it were so far.

        Whoever stops in between leaves the rest as it is. `timeout` bounds each batch.
        """
        done, cursor = 0, None
        while True:
            batch = await self.cancel_batch(reason=reason, cursor=cursor, timeout=timeout, **which)
            done, cursor = done + batch.changed, batch.next_cursor
            yield done
            if cursor is None:
                return

    async def retry_matching(
        self, *, attempts: int | None = None, timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> AsyncGenerator[int, None]:
        """Bring back all jobs that match, batch by batch. Yields how many it were so far.

        Whoever stops in between leaves the rest as it is. `timeout` bounds each batch.
        """
        done, cursor = 0, None
        while True:
            batch = await self.retry_batch(attempts=attempts, cursor=cursor, timeout=timeout, **which)
            done, cursor = done + batch.changed, batch.next_cursor
            yield done
            if cursor is None:
                return

    # ------------------------------------------------------------ at a glance

    async def topics(self, *, timeout: timedelta | None = None) -> list[TopicInfo]:
        """Return the topics that have jobs, had some lately, or have workers, by name."""
        request = pb.ListTopicsRequest()
        response = await self._caller.call(lambda stub: stub.ListTopics, request, timeout)
        return [topic_info(view) for view in response.topics]

    async def workers(self, *, timeout: timedelta | None = None) -> list[WorkerInfo]:
        """Return who is connected, to any server, and who holds jobs without being so; by name."""
        request = pb.ListWorkersRequest()
        response = await self._caller.call(lambda stub: stub.ListWorkers, request, timeout)
        return [worker_info(view) for view in response.workers]

    async def watch(
        self,
        *,
        topics: Iterable[str] = (),
        job_ids: Iterable[str] = (),
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[Transitions, None]:
        """Yield changes of jobs as they happen: of all jobs, or of these topics, or these jobs.

        The first one is empty: what happens from then on is seen. When the server goes away this waits until
        one is back and goes on; that one is marked as `interrupted`, since what happened meanwhile is lost.
        `timeout` bounds the first welcome. Leave the loop, or close the iterator, to stop watching.
        """
        request = message(
            pb.WatchJobsRequest, topics=_names("topics", topics), job_ids=_names("job_ids", job_ids)
        )
        seconds = self._caller.seconds(timeout)
        stream = watched(self._caller.session().connection, request, seconds)
        try:
            async for news in stream:
                yield news
        finally:
            await stream.aclose()


class SyncOverseeing:
    """What a `SyncPulse` can do with many jobs, and what it sees of topics and workers."""

    _pulse: Pulse
    _blocking: Blocking

    def find_jobs(self, prefix: str, *, timeout: timedelta | None = None) -> list[str]:
        """Return the ids that begin like this, ten at the most; dashes may be left out."""
        return self._blocking.call(self._pulse.find_jobs, prefix, timeout=timeout)

    def count_jobs(self, *, timeout: timedelta | None = None, **which: Unpack[JobFilter]) -> JobCount:
        """Count the jobs that match; without a status, those not finished. See `Pulse.count_jobs`."""
        return self._blocking.call(self._pulse.count_jobs, timeout=timeout, **which)

    def cancel_batch(
        self,
        *,
        reason: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Cancel the newest jobs that match, 500 at the most; without a status, whatever is not finished."""
        return self._blocking.call(
            self._pulse.cancel_batch, reason=reason, cursor=cursor, limit=limit, timeout=timeout, **which
        )

    def retry_batch(
        self,
        *,
        attempts: int | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Batch:
        """Bring back the newest jobs that match, 500 at the most. Status: DEAD_LETTERED or CANCELED."""
        return self._blocking.call(
            self._pulse.retry_batch, attempts=attempts, cursor=cursor, limit=limit, timeout=timeout, **which
        )

    def cancel_matching(
        self, *, reason: str = "", timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> Generator[int, None, None]:
        """Cancel all jobs that match, batch by batch. Yields how many it were so far."""
        return self._blocking.iterate(self._pulse.cancel_matching(reason=reason, timeout=timeout, **which))

    def retry_matching(
        self, *, attempts: int | None = None, timeout: timedelta | None = None, **which: Unpack[JobFilter]
    ) -> Generator[int, None, None]:
        """Bring back all jobs that match, batch by batch. Yields how many it were so far."""
        return self._blocking.iterate(self._pulse.retry_matching(attempts=attempts, timeout=timeout, **which))

    # ------------------------------------------------------------ at a glance

    def topics(self, *, timeout: timedelta | None = None) -> list[TopicInfo]:
        """Return the topics that have jobs, had some lately, or have workers, by name."""
        return self._blocking.call(self._pulse.topics, timeout=timeout)

    def workers(self, *, timeout: timedelta | None = None) -> list[WorkerInfo]:
        """Return who is connected, to any server, and who holds jobs without being so; by name."""
        return self._blocking.call(self._pulse.workers, timeout=timeout)

    def watch(
        self,
        *,
        topics: Iterable[str] = (),
        job_ids: Iterable[str] = (),
        timeout: timedelta | None = None,
    ) -> Generator[Transitions, None, None]:
        """Yield changes of jobs as they happen, blocking until there are some. See `Pulse.watch`."""
        return self._blocking.iterate(self._pulse.watch(topics=topics, job_ids=job_ids, timeout=timeout))


def _names(field: str, names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise InvalidArgument(f"{field}={names!r} is one text: give a list, such as {field}=[{names!r}].")
    return list(names)
