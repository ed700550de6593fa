"""The verbs for stored jobs: read them, and act on one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Unpack

from pulse import tuning
from pulse.client.caller import Caller
from pulse.client.filters import JobFilter, filter_fields, job_filter
from pulse.messages import existing_id, message
from pulse.models.jobs import FoundJobs, JobInfo, Page, found_jobs, job_info, job_page
from pulse.v1 import pulse_pb2 as pb


class JobVerbs:
    """The verbs of a `Pulse` for stored jobs.

    Calls of one verb with the same `action_id`, a UUID, are one entry of the audit, which `undo` reverts.
    """

    _caller: Caller

    async def get_job(self, job_id: str, *, timeout: timedelta | None = None) -> JobInfo:
        """Return a job with its attempt history. Raises NotFound."""
        request = message(pb.GetJobRequest, job_id=existing_id(job_id))
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
        """Return one page of the matching jobs, newest first, without their payloads and histories.

        No index has the completed jobs of a topic, errors or metadata: a call with such a filter reads
        100,000 jobs. It may return a page that is not full, or empty, and has a next one: see
        `Page.looked_back_to`. By topic alone it reads 400,000 jobs rather than return an empty page. With
        a status other than COMPLETED, a topic needs no such bound.
        """
        request = message(pb.ListJobsRequest, **filter_fields(**which), limit=limit, page_token=cursor or "")
        response = await self._caller.call(lambda stub: stub.ListJobs, request, timeout)
        return job_page(response)

    async def iter_jobs(
        self,
        *,
        page_size: int = tuning.PAGE_SIZE,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> AsyncIterator[JobInfo]:
        """Yield all matching jobs, newest first, page by page. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = await self.list_jobs(limit=page_size, cursor=cursor, timeout=timeout, **which)
            for job in page:
                yield job
            cursor = page.next_cursor
            if cursor is None:
                return

    async def find_jobs(self, prefix: str, *, timeout: timedelta | None = None) -> list[str]:
        """Return at most ten job ids that begin with the prefix. Its dashes may be left out."""
        request = message(pb.FindJobsRequest, prefix=prefix)
        response = await self._caller.call(lambda stub: stub.FindJobs, request, timeout)
        return list(response.job_ids)

    async def search_jobs(
        self,
        text: str,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
        **which: Unpack[JobFilter],
    ) -> FoundJobs:
        """Return jobs with this text in their id, topic, worker, lane or keys, newest first.

        Each word has to match. `args.order_id=42` is a field of the payload. A call compares the newest
        10,000 jobs that meet the conditions, among 100,000 jobs if one is a topic; `next_cursor` continues
        with older ones.
        """
        request = message(
            pb.SearchJobsRequest, text=text, filter=job_filter(**which), limit=limit, page_token=cursor or ""
        )
        response = await self._caller.call(lambda stub: stub.SearchJobs, request, timeout)
        return found_jobs(response)

    async def cancel(
        self, job_id: str, reason: str = "", *, action_id: str = "", timeout: timedelta | None = None
    ) -> JobInfo:
        """Cancel a job; a running handler is asked to stop. A job that is canceled already stays so.

        Raises InvalidTransition if it has finished otherwise.
        """
        request = message(pb.CancelJobRequest, job_id=existing_id(job_id), reason=reason, action_id=action_id)
        response = await self._caller.call(lambda stub: stub.CancelJob, request, timeout)
        return job_info(response.job)

    async def retry(
        self,
        job_id: str,
        attempts: int | None = None,
        *,
        fresh: bool = False,
        now: bool = False,
        reason: str = "",
        action_id: str = "",
        timeout: timedelta | None = None,
    ) -> JobInfo:
        """Retry a job that was dead-lettered or canceled, with this many more attempts.

        It continues after the steps that it has stored. `fresh` forgets them, and the signals that they took.
        A canceled job that never started keeps its later start time, unless `now`.
        """
        request = message(
            pb.RetryJobRequest,
            job_id=existing_id(job_id),
            attempts=attempts,
            fresh=fresh,
            now=now,
            reason=reason,
            action_id=action_id,
        )
        response = await self._caller.call(lambda stub: stub.RetryJob, request, timeout, repeatable=False)
        return job_info(response.job)

    async def prioritize(
        self,
        job_id: str,
        priority: int,
        reason: str = "",
        *,
        action_id: str = "",
        timeout: timedelta | None = None,
    ) -> JobInfo:
        """Change the priority of a job. Raises InvalidTransition if the job has finished.

        The audit has the reason and the user.
        """
        request = message(
            pb.PrioritizeJobRequest,
            job_id=existing_id(job_id),
            priority=priority,
            reason=reason,
            action_id=action_id,
        )
        response = await self._caller.call(lambda stub: stub.PrioritizeJob, request, timeout)
        return job_info(response.job)

    async def delete(
        self, job_id: str, *, reason: str = "", action_id: str = "", timeout: timedelta | None = None
    ) -> None:
        """Delete a finished job and its idempotency key. Raises InvalidTransition if it has not finished."""
        request = message(pb.DeleteJobRequest, job_id=existing_id(job_id), reason=reason, action_id=action_id)
        # Not repeatable: a repeat after a lost answer would raise NotFound.
        await self._caller.call(lambda stub: stub.DeleteJob, request, timeout, repeatable=False)
