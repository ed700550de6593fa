"""The verbs that look at jobs and act on them, and the pause switch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from pulse import tuning
from pulse.blocking import Blocking
from pulse.calling import Caller, message
from pulse.dispatch import DispatchStatus, dispatch_status
from pulse.errors import InvalidArgument
from pulse.identity import Identity, identity
from pulse.models import JobInfo, Page, job_info
from pulse.selecting import JobFilter, filter_fields
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from pulse.client import Pulse


class Operating:
    """What a `Pulse` can do with jobs that are stored, and with dispatch as a whole."""

    _caller: Caller

    async def get_job(self, job_id: str, *, timeout: timedelta | None = None) -> JobInfo:
        """Return everything about a job, its attempt history included. Raises NotFound."""
        request = message(pb.GetJobRequest, job_id=job_id)
        response = await self._caller.call(lambda stub: stub.GetJob, request, timeout)
        return job_info(response.job)

    async def list_jobs(
        self,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Page:
        """Return one page of the jobs that match, newest first, without their payloads and histories."""
        request = message(pb.ListJobsRequest, **filter_fields(**which), limit=limit, page_token=cursor or "")
        response = await self._caller.call(lambda stub: stub.ListJobs, request, timeout)
        return Page(tuple(map(job_info, response.jobs)), response.next_page_token or None)

    async def iter_jobs(
        self,
        *,
        page_size: int = tuning.PAGE_SIZE,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> AsyncIterator[JobInfo]:
        """Yield all jobs that match, newest first, page by page. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = await self.list_jobs(limit=page_size, cursor=cursor, timeout=timeout, **which)
            for job in page:
                yield job
            cursor = page.next_cursor
            if cursor is None:
                return

    async def cancel(self, job_id: str, reason: str = "", *, timeout: timedelta | None = None) -> JobInfo:
        """Cancel a job; a running handler is told to stop. Raises InvalidTransition if it has finished."""
        request = message(pb.CancelJobRequest, job_id=job_id, reason=reason)
        response = await self._caller.call(lambda stub: stub.CancelJob, request, timeout)
        return job_info(response.job)

    async def retry(
        self, job_id: str, attempts: int | None = None, *, timeout: timedelta | None = None
    ) -> JobInfo:
        """Bring back a job that was dead-lettered or cancelled, with this many further attempts."""
        request = message(pb.RetryJobRequest, job_id=job_id, attempts=attempts)
        response = await self._caller.call(lambda stub: stub.RetryJob, request, timeout, repeatable=False)
        return job_info(response.job)

    async def prioritize(self, job_id: str, priority: int, *, timeout: timedelta | None = None) -> JobInfo:
        """Give a job another priority. Raises InvalidTransition if it has finished."""
        request = message(pb.PrioritizeJobRequest, job_id=job_id, priority=priority)
        response = await self._caller.call(lambda stub: stub.PrioritizeJob, request, timeout)
        return job_info(response.job)

    async def delete(self, job_id: str, *, timeout: timedelta | None = None) -> None:
        """Delete a finished job, with its idempotency key. Raises InvalidTransition if it is not finished."""
        request = message(pb.DeleteJobRequest, job_id=job_id)
        # Not repeatable: a repeat after a lost answer would find nothing and say so.
        await self._caller.call(lambda stub: stub.DeleteJob, request, timeout, repeatable=False)

    async def whoami(self, *, timeout: timedelta | None = None) -> Identity:
        """Return who the server takes this client for, and what it may do."""
        return identity(await self._caller.call(lambda stub: stub.WhoAmI, pb.WhoAmIRequest(), timeout))

    # ------------------------------------------------------------ the pause switch

    async def pause(
        self, reason: str = "", topic: str | None = None, *, timeout: timedelta | None = None
    ) -> None:
        """Hand out no more jobs, of one topic or of all, until `resume`.

        Running jobs finish, enqueues go on, and schedules fire: their jobs wait. It holds on every
        replica of pulsed within about a second, and through restarts.
        """
        request = message(pb.PauseDispatchRequest, reason=reason, topic=_topic(topic))
        await self._caller.call(lambda stub: stub.PauseDispatch, request, timeout)

    async def resume(self, topic: str | None = None, *, timeout: timedelta | None = None) -> None:
        """Lift the pause of one topic, or of everything; topics that are paused by name stay so."""
        request = message(pb.ResumeDispatchRequest, topic=_topic(topic))
        await self._caller.call(lambda stub: stub.ResumeDispatch, request, timeout)

    async def dispatch_status(self, *, timeout: timedelta | None = None) -> DispatchStatus:
        """Return what is paused, since when and why."""
        request = pb.GetDispatchStatusRequest()
        return dispatch_status(await self._caller.call(lambda stub: stub.GetDispatchStatus, request, timeout))


class SyncOperating:
    """What a `SyncPulse` can do with jobs that are stored, and with dispatch as a whole."""

    _pulse: Pulse
    _blocking: Blocking

    def get_job(self, job_id: str, *, timeout: timedelta | None = None) -> JobInfo:
        """Return everything about a job, its attempt history included. Raises NotFound."""
        return self._blocking.call(self._pulse.get_job, job_id, timeout=timeout)

    def list_jobs(
        self,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Page:
        """Return one page of the jobs that match, newest first, without their payloads and histories."""
        return self._blocking.call(
            self._pulse.list_jobs, limit=limit, cursor=cursor, timeout=timeout, **which
        )

    def iter_jobs(
        self,
        *,
        page_size: int = tuning.PAGE_SIZE,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> Iterator[JobInfo]:
        """Yield all jobs that match, newest first, page by page. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = self.list_jobs(limit=page_size, cursor=cursor, timeout=timeout, **which)
            yield from page
            cursor = page.next_cursor
            if cursor is None:
                return

    def cancel(self, job_id: str, reason: str = "", *, timeout: timedelta | None = None) -> JobInfo:
        """Cancel a job; a running handler is told to stop. Raises InvalidTransition if it has finished."""
        return self._blocking.call(self._pulse.cancel, job_id, reason, timeout=timeout)

    def retry(self, job_id: str, attempts: int | None = None, *, timeout: timedelta | None = None) -> JobInfo:
        """Bring back a job that was dead-lettered or cancelled, with this many further attempts."""
        return self._blocking.call(self._pulse.retry, job_id, attempts, timeout=timeout)

    def prioritize(self, job_id: str, priority: int, *, timeout: timedelta | None = None) -> JobInfo:
        """Give a job another priority. Raises InvalidTransition if it has finished."""
        return self._blocking.call(self._pulse.prioritize, job_id, priority, timeout=timeout)

    def delete(self, job_id: str, *, timeout: timedelta | None = None) -> None:
        """Delete a finished job, with its idempotency key. Raises InvalidTransition if it is not finished."""
        self._blocking.call(self._pulse.delete, job_id, timeout=timeout)

    def whoami(self, *, timeout: timedelta | None = None) -> Identity:
        """Return who the server takes this client for, and what it may do."""
        return self._blocking.call(self._pulse.whoami, timeout=timeout)

    # ------------------------------------------------------------ the pause switch

    def pause(self, reason: str = "", topic: str | None = None, *, timeout: timedelta | None = None) -> None:
        """Hand out no more jobs, of one topic or of all, until `resume`. See `Pulse.pause`."""
        self._blocking.call(self._pulse.pause, reason, topic, timeout=timeout)

    def resume(self, topic: str | None = None, *, timeout: timedelta | None = None) -> None:
        """Lift the pause of one topic, or of everything; topics that are paused by name stay so."""
        self._blocking.call(self._pulse.resume, topic, timeout=timeout)

    def dispatch_status(self, *, timeout: timedelta | None = None) -> DispatchStatus:
        """Return what is paused, since when and why."""
        return self._blocking.call(self._pulse.dispatch_status, timeout=timeout)


def _topic(topic: str | None) -> str:
    # On the wire the empty topic is everything. Whoever computed a topic and got nothing did not mean that.
    if topic == "":
        raise InvalidArgument("topic is empty: name one, or leave it out to mean every topic.")
    return topic or ""
