"""The RPCs of jobs: submit them, read them, act on one or on all that match a filter, and wait for them.

Jobs that arrive as columns are stored all at once if each can be stored, else one by one. AwaitJobs is a
stream on which clients wait for any number of jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds, tuning
from pulse_server.base.errors import InvalidArgument, PulseError
from pulse_server.base.ids import has_version_of_fires, parse_id
from pulse_server.base.loops import TURN_ENTRIES, each_in_turns
from pulse_server.base.sharing import PendingBytes
from pulse_server.doors import boundary
from pulse_server.doors.addresses import peer_address
from pulse_server.doors.admission import Responses
from pulse_server.doors.boundary import Malformed, Unreadable, refusal, timestamp
from pulse_server.doors.callers import ChangeLog, calling_user
from pulse_server.doors.lines import LINES_BYTES, Lines
from pulse_server.jobs import messages
from pulse_server.jobs.new_jobs import ID_BYTES, AllInserted, NewJob, Submitted, UniformJobs
from pulse_server.jobs.rules import WAITING
from pulse_server.topics.rpcs import UnservedNotes
from pulse_server.topics.service import TopicRules
from pulse_server.work.awaiting import Answer, AwaitedJobs, Waiter
from pulse_server.work.jobs import Jobs, Selections
from pulse_server.work.submissions import Submissions


def check_columns(request: pb.SubmitJobsRequest) -> None:
    """Raise InvalidArgument if the columns do not make up jobs, or have more bytes than one statement."""
    columns = request.columns
    if request.jobs or request.unique_jobs:
        raise InvalidArgument("columns", "and jobs are both given: send them in two requests.")
    for field in ("payload", "job_id", "idempotency_key"):
        if getattr(columns.options, field):
            raise InvalidArgument(f"columns.options.{field}", "is given: each job has its own.")
    if columns.options.HasField("unique"):
        raise InvalidArgument("columns.options.unique", "is given: send these in unique_jobs.")
    count, ids, payloads = len(columns.payload_sizes), len(columns.job_ids), len(columns.payloads)
    bounds.check_count("columns.payload_sizes", count, bounds.MAX_JOBS_PER_SUBMIT)
    if ids != count * ID_BYTES:
        raise InvalidArgument(
            "columns.job_ids",
            f"has {ids} bytes, but {count} jobs need {count * ID_BYTES}: {ID_BYTES} for each.",
        )
    if payloads != (needed := sum(columns.payload_sizes)):
        raise InvalidArgument(
            "columns.payloads", f"has {payloads} bytes, but payload_sizes adds up to {needed}."
        )
    # Count the options once per job: a small request must not fill the database.
    size = payloads + count * columns.options.ByteSize()
    if size > tuning.COMMIT_BYTES:
        raise InvalidArgument(
            "columns",
            f"has {size} bytes, the options of each job included; {tuning.COMMIT_BYTES} are allowed at the "
            "most. Send fewer jobs at a time.",
        )


def uniform_jobs(columns: pb.JobColumns, max_attempts_of: messages.AttemptsOf) -> UniformJobs | None:
    """Return the jobs of checked columns, or None if a job has to be refused."""
    if max(columns.payload_sizes, default=0) > bounds.MAX_PAYLOAD_BYTES or has_version_of_fires(
        columns.job_ids
    ):
        return None
    try:
        template = messages.new_job(columns.options, max_attempts_of)
    except InvalidArgument:
        return None
    return UniformJobs(template, columns.job_ids, list(_payloads(columns)))


def each_job(columns: pb.JobColumns) -> Iterator[pb.SubmitJobRequest]:
    """Yield the request for each job of checked columns."""
    ids = columns.job_ids.hex()
    for place, payload in enumerate(_payloads(columns)):
        job = pb.SubmitJobRequest()
        job.CopyFrom(columns.options)
        job.job_id = ids[2 * ID_BYTES * place : 2 * ID_BYTES * (place + 1)]
        job.payload = payload
        yield job


def _payloads(columns: pb.JobColumns) -> Iterator[bytes]:
    payloads = columns.payloads
    return (payloads[begin:end] for begin, end in pairwise(accumulate(columns.payload_sizes, initial=0)))


class JobRpcs:
    def __init__(
        self,
        submissions: Submissions,
        jobs: Jobs,
        rules: TopicRules,
        change_log: ChangeLog,
        look_for_arrivals: Callable[[], None],
        unserved: UnservedNotes | None = None,
    ) -> None:
        """Without `unserved`, callers get no notes about topics without workers."""
        self._unserved = unserved
        self._submissions = submissions
        self._jobs = jobs
        self._max_attempts_of = rules.max_attempts
        self._change_log = change_log
        self._look_for_arrivals = look_for_arrivals

    async def submit_job(self, request: pb.SubmitJobRequest, context: Any) -> pb.SubmitJobResponse:
        job = messages.new_job(request, self._max_attempts_of)
        (answer,) = await self._submissions.submit([job])
        if isinstance(answer, PulseError):
            raise answer
        if answer.is_replaced:
            self._change_log.record_replaced([answer.job_id], context)
        self._change_log.record_submitted([job.topic], lambda: int(not answer.duplicate), context)
        return pb.SubmitJobResponse(
            job_id=answer.job_id,
            duplicate=answer.duplicate,
            replaced=answer.is_replaced,
            submitted_at=timestamp(answer.submitted_at),
        )

    async def submit_jobs(self, request: pb.SubmitJobsRequest, context: Any) -> pb.SubmitJobsResponse:
        if request.wake:
            self._look_for_arrivals()
        if request.HasField("columns"):
            return await self._submit_columns(request, context)
        bounds.check_count("jobs", len(request.jobs), bounds.MAX_JOBS_PER_SUBMIT)
        if not request.unique_jobs:
            return await self._submit_each(request.jobs, context, brief=request.brief)
        # Count before making a list, which would have an object for each job.
        count = len(request.jobs) + len(request.unique_jobs)
        bounds.check_count("jobs and unique_jobs", count, bounds.MAX_JOBS_PER_SUBMIT)
        each = chain(request.jobs, request.unique_jobs)
        return await self._submit_each(each, context, brief=request.brief)

    async def _submit_columns(self, request: pb.SubmitJobsRequest, context: Any) -> pb.SubmitJobsResponse:
        check_columns(request)
        jobs = uniform_jobs(request.columns, self._max_attempts_of)
        if jobs is None:
            return await self._submit_each(each_job(request.columns), context, brief=True)
        submitted = await self._submissions.submit(jobs)
        self._record_submitted([request.columns.options.topic], submitted, context)
        notes = await self._notes([request.columns.options.topic], context)
        if _are_inserted(submitted):
            moment = _first_moment(submitted)
            return pb.SubmitJobsResponse(all_inserted=True, submitted_at=moment, no_worker=notes)
        results = await each_in_turns(_result, submitted, TURN_ENTRIES)
        return pb.SubmitJobsResponse(results=results, no_worker=notes)

    async def _submit_each(
        self, requests: Iterable[pb.SubmitJobRequest], context: Any, *, brief: bool
    ) -> pb.SubmitJobsResponse:
        good: list[NewJob] = []
        # Not the errors themselves: their tracebacks hold this frame, which would be a reference cycle.
        refused: list[pb.SubmitResult | None] = []
        entries = 0
        ids_are_kept = brief
        may_replace = False
        topics: dict[str, None] = {}
        for wire_job in requests:
            if entries >= TURN_ENTRIES:
                entries = 0
                await asyncio.sleep(0)  # serve other calls
            entries += 1
            try:
                job = messages.new_job(wire_job, self._max_attempts_of)
            except InvalidArgument as error:
                refused.append(_result(error))
            else:
                good.append(job)
                refused.append(None)
                topics[job.topic] = None
                ids_are_kept = ids_are_kept and job.id == wire_job.job_id
                may_replace = may_replace or (job.unique is not None and job.unique.replaces)
                if job.metadata:
                    entries += len(job.metadata)
        submitted = await self._submissions.submit(good)
        if may_replace:
            replaced = [one.job_id for one in submitted if isinstance(one, Submitted) and one.is_replaced]
            self._change_log.record_replaced(replaced, context)
        self._record_submitted(topics, submitted, context)
        notes = await self._notes(topics, context)
        if ids_are_kept and len(submitted) == len(refused) and _are_inserted(submitted):
            moment = _first_moment(submitted)
            return pb.SubmitJobsResponse(all_inserted=True, submitted_at=moment, no_worker=notes)
        rest = iter(submitted)
        return pb.SubmitJobsResponse(
            results=await each_in_turns(
                lambda result: _result(next(rest)) if result is None else result, refused, TURN_ENTRIES
            ),
            no_worker=notes,
        )

    def _record_submitted(
        self, topics: Iterable[str], answers: Iterable[Submitted | PulseError], context: Any
    ) -> None:
        def inserted() -> int:
            return sum(1 for answer in answers if isinstance(answer, Submitted) and not answer.duplicate)

        self._change_log.record_submitted(topics, inserted, context)

    async def _notes(self, topics: Iterable[str], context: Any) -> list[pb.NoWorker]:
        return [] if self._unserved is None else await self._unserved.of_new(topics, context)

    async def get_job(self, request: pb.GetJobRequest, context: Any) -> pb.GetJobResponse:
        job = await self._jobs.get(parse_id(request.job_id))
        view = messages.job_view(job)
        if self._unserved is not None and job.status in WAITING:
            view.no_worker = await self._unserved.of(job.topic, context)
        return pb.GetJobResponse(job=view)

    async def list_jobs(self, request: pb.ListJobsRequest, _context: Any) -> pb.ListJobsResponse:
        page = await self._jobs.list(
            messages.job_filter(request),
            limit=bounds.check_page_size(request.limit, bounds.DEFAULT_PAGE_SIZE),
            offset=bounds.check_offset(request.offset),
            token=request.page_token,
        )
        return pb.ListJobsResponse(
            jobs=await each_in_turns(messages.job_view, page.entries),
            next_page_token=page.next_token,
            looked_back_to=timestamp(page.looked_back_to),
        )

    async def find_jobs(self, request: pb.FindJobsRequest, _context: Any) -> pb.FindJobsResponse:
        return pb.FindJobsResponse(job_ids=await self._jobs.find(bounds.check_id_prefix(request.prefix)))

    async def cancel_job(self, request: pb.CancelJobRequest, _context: Any) -> pb.CancelJobResponse:
        job = await self._jobs.cancel(parse_id(request.job_id), bounds.clean_error(request.reason))
        return pb.CancelJobResponse(job=messages.job_view(job))

    async def retry_job(self, request: pb.RetryJobRequest, _context: Any) -> pb.RetryJobResponse:
        granted = messages.attempts_granted(request)
        job = await self._jobs.retry(
            parse_id(request.job_id), granted, fresh=request.fresh, at_once=request.now
        )
        return pb.RetryJobResponse(job=messages.job_view(job))

    async def prioritize_job(
        self, request: pb.PrioritizeJobRequest, _context: Any
    ) -> pb.PrioritizeJobResponse:
        job = await self._jobs.prioritize(parse_id(request.job_id), request.priority)
        return pb.PrioritizeJobResponse(job=messages.job_view(job))

    async def delete_job(self, request: pb.DeleteJobRequest, _context: Any) -> pb.DeleteJobResponse:
        await self._jobs.delete(parse_id(request.job_id))
        return pb.DeleteJobResponse()


def _are_inserted(answers: Sequence[Submitted | PulseError]) -> bool:
    return isinstance(answers, AllInserted) or all(
        isinstance(answer, Submitted) and not answer.duplicate for answer in answers
    )


def _first_moment(answers: Sequence[Submitted | PulseError]) -> Timestamp | None:
    if isinstance(answers, AllInserted):
        return timestamp(answers.submitted_at)
    known = [
        answer.submitted_at for answer in answers if isinstance(answer, Submitted) and answer.submitted_at
    ]
    return timestamp(min(known, default=None))


def _result(answer: Submitted | PulseError) -> pb.SubmitResult:
    if isinstance(answer, PulseError):
        return pb.SubmitResult(refusal=refusal(answer))
    return pb.SubmitResult(
        job_id=answer.job_id,
        duplicate=answer.duplicate,
        replaced=answer.is_replaced,
        submitted_at=timestamp(answer.submitted_at),
    )


class SelectionRpcs:
    def __init__(self, selections: Selections) -> None:
        self._selections = selections

    async def count_jobs(self, request: pb.CountJobsRequest, _context: Any) -> pb.CountJobsResponse:
        count = await self._selections.count(messages.job_filter(request.filter))
        return pb.CountJobsResponse(
            count=count.jobs, counted_at=boundary.timestamp(count.at), at_least=count.is_cut
        )

    async def cancel_jobs(self, request: pb.CancelJobsRequest, _context: Any) -> pb.CancelJobsResponse:
        batch = await self._selections.cancel(
            messages.job_filter(request.filter),
            bounds.clean_error(request.reason),
            limit=bounds.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.CancelJobsResponse(
            canceled=batch.changed, next_page_token=batch.next_token, locked=batch.locked
        )

    async def undo_action(self, request: pb.UndoActionRequest, _context: Any) -> pb.UndoActionResponse:
        batch = await self._selections.undo(
            parse_id(request.action_id, "action_id"),
            limit=bounds.check_batch_size(request.limit),
            token=request.page_token,
            is_dry_run=request.dry_run,
        )
        return pb.UndoActionResponse(
            undone=batch.undone,
            skipped=batch.skipped,
            running=batch.running,
            held=batch.held,
            locked=batch.locked,
            next_page_token=batch.next_token,
        )

    async def retry_jobs(self, request: pb.RetryJobsRequest, _context: Any) -> pb.RetryJobsResponse:
        batch = await self._selections.retry(
            messages.job_filter(request.filter),
            messages.attempts_granted(request),
            limit=bounds.check_batch_size(request.limit),
            token=request.page_token,
            fresh=request.fresh,
            at_once=request.now,
        )
        return pb.RetryJobsResponse(
            retried=batch.changed,
            next_page_token=batch.next_token,
            locked=batch.locked,
            held=batch.held,
            in_canceled_workflows=batch.in_canceled_workflows,
            canceled_workflows=batch.canceled_workflows,
        )

    async def prioritize_jobs(
        self, request: pb.PrioritizeJobsRequest, _context: Any
    ) -> pb.PrioritizeJobsResponse:
        batch = await self._selections.prioritize(
            messages.job_filter(request.filter),
            request.priority,
            limit=bounds.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.PrioritizeJobsResponse(
            prioritized=batch.changed, next_page_token=batch.next_token, locked=batch.locked
        )

    async def delete_jobs(self, request: pb.DeleteJobsRequest, _context: Any) -> pb.DeleteJobsResponse:
        batch = await self._selections.delete(
            messages.job_filter(request.filter),
            limit=bounds.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.DeleteJobsResponse(
            deleted=batch.changed,
            next_page_token=batch.next_token,
            locked=batch.locked,
            needed=batch.needed,
        )


Context = grpc.aio.ServicerContext[Any, Any]

_NO_WAITS = "The server is short of memory and accepts no waits for jobs. Try again in a moment."


class AwaitingRpcs:
    def __init__(self, awaited: AwaitedJobs, responses: Responses, lines: Lines) -> None:
        self._awaited = awaited
        self._responses = responses
        self._lines = lines
        self._pending = PendingBytes(LINES_BYTES)

    async def await_jobs(self, _requests: Any, context: Context) -> None:
        """Send jobs as they finish, until the caller disconnects or all are sent, or the server stops."""
        caller = calling_user() or peer_address(context.peer())
        with self._awaited.waiting(caller) as waiter, self._lines.opened(waiter, _NO_WAITS):
            await context.write(pb.AwaitJobsResponse())
            reading = asyncio.create_task(self._read(waiter, context))
            sending = asyncio.create_task(self._send(waiter, caller, context))
            try:
                await asyncio.wait({reading, sending}, return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    reading.result()  # raises the error of a bad request
                    waiter.finish()
                await sending
            finally:
                # Nothing may write once this method has returned: for gRPC the stream is over.
                for task in (reading, sending):
                    task.cancel()
                await asyncio.wait({reading, sending})

    async def _read(self, waiter: Waiter, context: Context) -> None:
        while True:
            await self._pending.wait_below_limit()
            read = await context.read()
            if read is grpc.aio.EOF:
                return
            await self._pending.wait_below_limit()  # other streams may have read since
            size = await read.weigh()
            self._pending.add(size)
            try:
                await _apply(await read.parse(), waiter)
            finally:
                self._pending.remove(size)

    async def _send(self, waiter: Waiter, caller: str, context: Context) -> None:
        async for answer in waiter.answers():
            await self._responses.send(await _message(answer), caller, context)


async def _message(answer: Answer) -> bytes:
    """Return the message as bytes: for a caller that does not read, only these stay in memory."""
    finished = await each_in_turns(messages.job_view, answer.finished)
    return pb.AwaitJobsResponse(finished=finished, missing=answer.missing).SerializeToString()


async def _apply(message: pb.AwaitJobsRequest | Unreadable, waiter: Waiter) -> None:
    if isinstance(message, Unreadable):
        raise Malformed(message)
    for field in ("add", "drop"):
        bounds.check_count(field, len(getattr(message, field)), bounds.MAX_AWAITED_PER_MESSAGE)
    waiter.add(await each_in_turns(lambda one: parse_id(one, "add"), message.add, TURN_ENTRIES))
    waiter.drop(await each_in_turns(lambda one: parse_id(one, "drop"), message.drop, TURN_ENTRIES))
