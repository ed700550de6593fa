"""The verbs for stored jobs: read them, act on one, signal it, undo an action, and export finished ones."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Unpack
from uuid import uuid4

import grpc.aio

from pulse import tuning
from pulse.ids import uuid7
from pulse.jobs.caller import Caller, blocks_in_handler_threads
from pulse.jobs.models import (
    FoundJobs,
    JobInfo,
    JobStatus,
    Page,
    StepInfo,
    found_jobs,
    job_info,
    job_page,
    step_info,
)
from pulse.jobs.selections import JobFilter, aware, filter_fields, job_filter, not_empty, one_or_several
from pulse.messages import Items, Reader, existing_id, message
from pulse.payload import encode
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import is_refused_for_now
from pulse.wire.streams import Patience, reconnecting_stream


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


def encode_signal(value: object) -> bytes:
    """Return the value of a signal as it is stored. Raises InvalidArgument."""
    return b"null" if value is None else encode(value, "value of the signal")


class StepVerbs:
    """The verbs of a client for the steps of jobs."""

    _caller: Caller

    @blocks_in_handler_threads
    async def signal(
        self,
        job_id: str,
        name: str,
        value: object = None,
        *,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> None:
        """Send a signal to a job, for its `ctx.wait_for(name)`. A signal before the wait is kept.

        It is delivered exactly once. Raises InvalidTransition if the job has finished, NotFound if
        it does not exist. In a `def` handler this blocks.
        """
        request = message(
            pb.SignalJobRequest,
            job_id=existing_id(job_id),
            name=name,
            value=encode_signal(value),
            signal_id=uuid7(),
            reason=reason,
        )
        await self._caller.call(lambda stub: stub.SignalJob, request, timeout)

    async def steps(
        self, job_id: str, *, values: bool = False, timeout: timedelta | None = None
    ) -> list[StepInfo]:
        """Return the steps of a job, in the order in which they were stored. Raises NotFound.

        With `values` each step has its value, unless the job is completed.
        """
        request = message(pb.ListStepsRequest, job_id=existing_id(job_id), values=values)
        response = await self._caller.call(lambda stub: stub.ListSteps, request, timeout)
        return list(map(step_info, response.steps))


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of one batch of an undo."""

    undone: int
    skipped: int
    """Jobs that have changed since the action, are locked, or whose unique key another job holds."""
    running: int
    """Those of the skipped jobs that were canceled while they ran. Retry them to run them again."""
    next_cursor: str | None
    """Pass it to the next batch. None if no job is left."""
    held: int = 0
    """Those of the skipped jobs whose unique key another job holds."""
    locked: int = 0
    """Those of the skipped jobs that another database session has locked. Undo the action again for them."""

    def __add__(self, batch: Undone) -> Undone:
        """Return the totals. The cursor is that of the later batch."""
        return Undone(
            self.undone + batch.undone,
            self.skipped + batch.skipped,
            self.running + batch.running,
            batch.next_cursor,
            self.held + batch.held,
            self.locked + batch.locked,
        )


class UndoVerbs:
    """The verbs of a `Pulse` that undo an action."""

    _caller: Caller

    async def undo_batch(
        self,
        action_id: str,
        *,
        reason: str = "",
        dry_run: bool = False,
        cursor: str | None = None,
        undo_id: str = "",
        timeout: timedelta | None = None,
    ) -> Undone:
        """Revert the next jobs of an action that canceled, retried or prioritized jobs.

        Only jobs that are as the action left them are changed. `dry_run` only counts. `undo_id` is the id of
        this action: give the same one for all batches.
        """
        request = message(
            pb.UndoActionRequest,
            action_id=existing_id(action_id, "action"),
            reason=reason,
            dry_run=dry_run,
            page_token=cursor or "",
            undo_id=undo_id,
        )
        response = await self._caller.call(lambda stub: stub.UndoAction, request, timeout, repeatable=dry_run)
        return Undone(
            response.undone,
            response.skipped,
            response.running,
            response.next_page_token or None,
            response.held,
            response.locked,
        )

    async def undo(self, action_id: str, *, reason: str = "", timeout: timedelta | None = None) -> Undone:
        """Revert a whole action, batch by batch. Returns the totals. `timeout` bounds each batch.

        A delete cannot be undone. Raises InvalidTransition if no job was changed by the action last.
        """
        total, undo_id = Undone(0, 0, 0, None), str(uuid4())
        while True:
            total += await self.undo_batch(
                action_id, reason=reason, cursor=total.next_cursor, undo_id=undo_id, timeout=timeout
            )
            if total.next_cursor is None:
                return total


@dataclass(frozen=True, slots=True)
class ExportedJobs(Items[JobInfo]):
    """The next jobs of an export, with their payloads and histories. There may be none."""

    jobs: tuple[JobInfo, ...]
    next_cursor: str | None
    """Pass it to another `export_jobs` to continue after these jobs. None: nothing follows."""
    before: datetime | None
    """The export has the jobs that finished before it. Begin the next one here."""
    steps: Mapping[str, tuple[StepInfo, ...]] = field(default_factory=dict)
    """The steps of those jobs that have some, by job id, without values."""


exported_jobs = Reader(
    ExportedJobs,
    next_cursor="next_page_token",
    before="finished_before",
    steps=lambda response: {of_job.job_id: tuple(map(step_info, of_job.steps)) for of_job in response.steps},
)
"""Returns the jobs in a message."""


class ExportVerbs:
    """The verbs of a `Pulse` that export jobs."""

    _caller: Caller

    async def export_jobs(
        self,
        *,
        before: datetime | None = None,
        since: datetime | None = None,
        topic: str | None = None,
        topics: Iterable[str] | None = None,
        status: JobStatus | str | None = None,
        statuses: Iterable[JobStatus | str] | None = None,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> AsyncGenerator[ExportedJobs, None]:
        """Yield jobs that finished before a time, with payload, history and steps, in order of submission.

        Each job comes once at the most, and none that is there throughout is left out. Without `before`, all
        that finished until a few seconds ago. If the connection is lost, the export continues where it was;
        `timeout` bounds each wait for a server. To continue an export later, pass the last `next_cursor`
        with the same filter.
        """
        request = message(
            pb.ExportJobsRequest,
            **one_or_several("topic", topic, topics),
            **one_or_several("status", status, statuses),
            finished_since=aware("since", since),
            finished_before=aware("before", before),
            page_token=not_empty("cursor", cursor),
        )
        export = _Export(self._caller.session().connection, request, self._caller.seconds(timeout))
        async with contextlib.aclosing(export.pages()) as pages:
            async for page in pages:
                yield page


class _Export:
    """One export. Each message moves the place where the next stream begins."""

    def __init__(self, connection: Connection, request: pb.ExportJobsRequest, timeout_seconds: float) -> None:
        self._connection = connection
        self._request = request
        self._timeout_seconds = timeout_seconds

    async def pages(self) -> AsyncGenerator[ExportedJobs, None]:
        patience = Patience(self._connection, self._timeout_seconds, is_refused_for_now)
        stream = reconnecting_stream(
            self._connection, self._open, patience.lost, welcome_seconds=patience.welcome_seconds
        )
        async with contextlib.aclosing(stream):
            async for response in stream:
                yield exported_jobs(response)
                if not response.next_page_token:
                    return
                self._request.page_token = response.next_page_token
                patience.renew(self._timeout_seconds)

    def _open(self) -> grpc.aio.UnaryStreamCall[pb.ExportJobsRequest, pb.ExportJobsResponse]:
        return self._connection.open_stream(self._connection.stub.ExportJobs, self._request)
