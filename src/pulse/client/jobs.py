"""The verbs for jobs: enqueue them, read them, and act on one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Unpack

from pulse import payload as payloads
from pulse import tuning
from pulse.client.bulk import Bulk
from pulse.client.caller import Caller
from pulse.client.filters import JobFilter, filter_fields
from pulse.client.submissions import make_submission
from pulse.errors import InvalidArgument, PartialFailure, PulseError
from pulse.job_handle import JobHandle
from pulse.models.jobs import JobInfo, Page, job_info
from pulse.tracing.optional import in_enqueue_span
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.messages import message


class JobVerbs:
    """What a `Pulse` can do with jobs."""

    _caller: Caller

    async def enqueue(
        self,
        topic: str,
        args: object = None,
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        key: str | None = None,
        metadata: Mapping[str, str] | None = None,
        job_id: str | None = None,
        timeout: timedelta | None = None,
    ) -> JobHandle:
        """Store a job. Returns its handle once the job is committed to the database.

        Jobs with a higher `priority` always run first, over all topics that a worker serves.

        Concurrent calls share a batch. If an answer is lost, the job is sent again until `timeout`; it is
        stored once. With `key`, a later enqueue on the topic with the same key and arguments returns this
        job (`.duplicate`); with other arguments it raises AlreadyExists.
        """
        submission = make_submission(
            topic,
            payloads.encode(args),
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            key=key,
            metadata=metadata,
            job_id=job_id,
        )
        sending = self._caller.session().submitter.submit(submission, self._caller.seconds(timeout))
        return await in_enqueue_span(submission.request, 1, sending)

    async def enqueue_many(
        self,
        topic: str,
        items: Iterable[object],
        *,
        priority: int = 0,
        delay: timedelta | None = None,
        run_at: datetime | None = None,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> list[JobHandle]:
        """Store a job for each item, in batches. Returns their handles in the same order.

        All jobs share the options. `timeout` bounds each batch. If the server refuses some items, the others
        are stored, and PartialFailure lists both.
        """
        # Encode all items before sending any: if one cannot be encoded, no job is stored.
        if not isinstance(items, Iterable):
            raise InvalidArgument(f"items has to be a list, one item for each job, but {items!r} was given.")
        encoded = [payloads.encode(item) for item in items]
        template = make_submission(
            topic,
            b"",
            priority=priority,
            delay=delay,
            run_at=run_at,
            max_attempts=max_attempts,
            metadata=metadata,
        )
        bulk = Bulk(template, encoded)
        sending = self._submit_all(bulk, self._caller.seconds(timeout))
        return await in_enqueue_span(template.request, len(encoded), sending)

    async def get_job(self, job_id: str, *, timeout: timedelta | None = None) -> JobInfo:
        """Return a job with its attempt history. Raises NotFound."""
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
        """Return one page of the matching jobs, newest first, without their payloads and histories."""
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

    async def cancel(self, job_id: str, reason: str = "", *, timeout: timedelta | None = None) -> JobInfo:
        """Cancel a job; a running handler is asked to stop. Raises InvalidTransition if it has finished."""
        request = message(pb.CancelJobRequest, job_id=job_id, reason=reason)
        response = await self._caller.call(lambda stub: stub.CancelJob, request, timeout)
        return job_info(response.job)

    async def retry(
        self, job_id: str, attempts: int | None = None, *, timeout: timedelta | None = None
    ) -> JobInfo:
        """Retry a job that was dead-lettered or canceled, with this many more attempts."""
        request = message(pb.RetryJobRequest, job_id=job_id, attempts=attempts)
        response = await self._caller.call(lambda stub: stub.RetryJob, request, timeout, repeatable=False)
        return job_info(response.job)

    async def prioritize(
        self, job_id: str, priority: int, reason: str = "", *, timeout: timedelta | None = None
    ) -> JobInfo:
        """Change the priority of a job. Raises InvalidTransition if the job has finished.

        The server logs the reason and the user.
        """
        request = message(pb.PrioritizeJobRequest, job_id=job_id, priority=priority, reason=reason)
        response = await self._caller.call(lambda stub: stub.PrioritizeJob, request, timeout)
        return job_info(response.job)

    async def delete(self, job_id: str, *, timeout: timedelta | None = None) -> None:
        """Delete a finished job and its idempotency key. Raises InvalidTransition if it has not finished."""
        request = message(pb.DeleteJobRequest, job_id=job_id)
        # Not repeatable: a repeat after a lost answer would raise NotFound.
        await self._caller.call(lambda stub: stub.DeleteJob, request, timeout, repeatable=False)

    async def _submit_all(self, bulk: Bulk, timeout_seconds: float) -> list[JobHandle]:
        outcomes = await bulk.submit(self._caller.session().submitter, timeout_seconds)
        handles = [outcome for outcome in outcomes if isinstance(outcome, JobHandle)]
        if len(handles) < len(outcomes):
            raise PartialFailure(
                {at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, PulseError)},
                [outcome if isinstance(outcome, JobHandle) else None for outcome in outcomes],
            )
        return handles
