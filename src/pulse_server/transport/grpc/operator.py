"""The RPCs that look at jobs and act on them, one or many, and turn the pause switch."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import limits
from pulse_server.domain.dispatch import Pause
from pulse_server.domain.ids import parse_id
from pulse_server.service.dispatch import Dispatch
from pulse_server.service.jobs import Jobs
from pulse_server.service.paging import fitting
from pulse_server.service.selections import Selections
from pulse_server.transport.grpc import convert
from pulse_server.transport.grpc.callers import Callers
from pulse_server.turns import each_in_turns

# What a paused topic takes in an answer besides its texts.
_PAUSE_BYTES = 40


class Operator:
    def __init__(self, jobs: Jobs, selections: Selections, dispatch: Dispatch, callers: Callers) -> None:
        self._jobs = jobs
        self._selections = selections
        self._dispatch = dispatch
        self._callers = callers

    async def get_job(self, request: pb.GetJobRequest, _context: Any) -> pb.GetJobResponse:
        job = await self._jobs.get(parse_id(request.job_id))
        return pb.GetJobResponse(job=convert.job_view(job))

    async def list_jobs(self, request: pb.ListJobsRequest, _context: Any) -> pb.ListJobsResponse:
        page = await self._jobs.list(
            convert.job_filter(request),
            limit=limits.check_page_size(request.limit, limits.DEFAULT_PAGE_SIZE),
            offset=limits.check_offset(request.offset),
            token=request.page_token,
        )
        return pb.ListJobsResponse(
            jobs=await each_in_turns(convert.job_view, page.entries), next_page_token=page.next_token
        )

    async def cancel_job(self, request: pb.CancelJobRequest, _context: Any) -> pb.CancelJobResponse:
        job = await self._jobs.cancel(parse_id(request.job_id), limits.clean_error(request.reason))
        return pb.CancelJobResponse(job=convert.job_view(job))

    async def retry_job(self, request: pb.RetryJobRequest, _context: Any) -> pb.RetryJobResponse:
        job = await self._jobs.retry(parse_id(request.job_id), convert.attempts_granted(request))
        return pb.RetryJobResponse(job=convert.job_view(job))

    async def prioritize_job(
        self, request: pb.PrioritizeJobRequest, _context: Any
    ) -> pb.PrioritizeJobResponse:
        job = await self._jobs.prioritize(parse_id(request.job_id), request.priority)
        return pb.PrioritizeJobResponse(job=convert.job_view(job))

    async def delete_job(self, request: pb.DeleteJobRequest, _context: Any) -> pb.DeleteJobResponse:
        await self._jobs.delete(parse_id(request.job_id))
        return pb.DeleteJobResponse()

    async def find_jobs(self, request: pb.FindJobsRequest, _context: Any) -> pb.FindJobsResponse:
        return pb.FindJobsResponse(job_ids=await self._jobs.find(limits.check_id_prefix(request.prefix)))

    async def count_jobs(self, request: pb.CountJobsRequest, _context: Any) -> pb.CountJobsResponse:
        count, counted_at = await self._selections.count(convert.job_filter(request.filter))
        return pb.CountJobsResponse(count=count, counted_at=convert.timestamp(counted_at))

    async def cancel_jobs(self, request: pb.CancelJobsRequest, _context: Any) -> pb.CancelJobsResponse:
        batch = await self._selections.cancel(
            convert.job_filter(request.filter),
            limits.clean_error(request.reason),
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.CancelJobsResponse(
            canceled=batch.changed, next_page_token=batch.next_token, locked=batch.locked
        )

    async def retry_jobs(self, request: pb.RetryJobsRequest, _context: Any) -> pb.RetryJobsResponse:
        batch = await self._selections.retry(
            convert.job_filter(request.filter),
            convert.attempts_granted(request),
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.RetryJobsResponse(
            retried=batch.changed, next_page_token=batch.next_token, locked=batch.locked
        )

    async def prioritize_jobs(
        self, request: pb.PrioritizeJobsRequest, _context: Any
    ) -> pb.PrioritizeJobsResponse:
        batch = await self._selections.prioritize(
            convert.job_filter(request.filter),
            request.priority,
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.PrioritizeJobsResponse(
            prioritized=batch.changed, next_page_token=batch.next_token, locked=batch.locked
        )

    async def delete_jobs(self, request: pb.DeleteJobsRequest, _context: Any) -> pb.DeleteJobsResponse:
        batch = await self._selections.delete(
            convert.job_filter(request.filter),
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.DeleteJobsResponse(
            deleted=batch.changed, next_page_token=batch.next_token, locked=batch.locked
        )

    async def pause_dispatch(
        self, request: pb.PauseDispatchRequest, context: Any
    ) -> pb.PauseDispatchResponse:
        reason, by = limits.clean_error(request.reason), self._callers.of(context).user
        await self._dispatch.pause(_topic(request.topic), reason, by)
        return pb.PauseDispatchResponse()

    async def resume_dispatch(
        self, request: pb.ResumeDispatchRequest, _context: Any
    ) -> pb.ResumeDispatchResponse:
        await self._dispatch.resume(_topic(request.topic))
        return pb.ResumeDispatchResponse()

    async def get_dispatch_status(
        self, _request: pb.GetDispatchStatusRequest, _context: Any
    ) -> pb.GetDispatchStatusResponse:
        state = await self._dispatch.status()
        everything = state.everything
        paused = list(state.topics.items())
        count = fitting(map(_weight, paused))
        return pb.GetDispatchStatusResponse(
            paused=everything is not None,
            reason=everything.reason if everything else "",
            paused_at=convert.timestamp(everything.since if everything else None),
            paused_by=everything.by if everything else "",
            topics=await each_in_turns(_paused_topic, paused[:count]),
            topics_left_out=len(paused) - count,
        )


def _paused_topic(entry: tuple[str, Pause]) -> pb.PausedTopic:
    topic, pause = entry
    return pb.PausedTopic(
        topic=topic, reason=pause.reason, paused_at=convert.timestamp(pause.since), paused_by=pause.by
    )


def _weight(entry: tuple[str, Pause]) -> int:
    """About how many bytes the topic adds to an answer."""
    topic, pause = entry
    return len(topic) + len(pause.reason.encode()) + len(pause.by.encode()) + _PAUSE_BYTES


def _topic(name: str) -> str | None:
    return limits.check_topic(name) if name else None
