"""The RPCs of jobs: submit them, read them, and act on one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument, PulseError
from pulse_server.base.ids import parse_id
from pulse_server.base.loops import TURN_ENTRIES, each_in_turns
from pulse_server.doors.boundary import refusal, timestamp
from pulse_server.doors.callers import ChangeLog
from pulse_server.jobs import messages
from pulse_server.jobs.new_jobs import AllInserted, NewJob, Submitted
from pulse_server.jobs.rules import WAITING
from pulse_server.service.jobs import Jobs
from pulse_server.service.submissions import Submissions
from pulse_server.topics.rpcs import UnservedNotes
from pulse_server.topics.service import TopicRules
from pulse_server.transport.grpc import convert_columns


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
        convert_columns.check_columns(request)
        jobs = convert_columns.uniform_jobs(request.columns, self._max_attempts_of)
        if jobs is None:
            return await self._submit_each(convert_columns.each_job(request.columns), context, brief=True)
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
