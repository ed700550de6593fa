"""The RPCs that look at jobs and act on them."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server import tuning
from pulse_server.domain import limits
from pulse_server.domain.ids import parse_job_id
from pulse_server.service.gate import PauseControl
from pulse_server.service.jobs import Jobs
from pulse_server.transport.grpc import convert


class Operator:
    def __init__(self, jobs: Jobs, pause: PauseControl) -> None:
        self._jobs = jobs
        self._pause = pause

    async def get_job(self, request: pb.GetJobRequest, _context: Any) -> pb.GetJobResponse:
        job = await self._jobs.get(parse_job_id(request.job_id))
        return pb.GetJobResponse(job=convert.job_view(job))

    async def list_jobs(self, request: pb.ListJobsRequest, _context: Any) -> pb.ListJobsResponse:
        page = await self._jobs.list(
            convert.job_filter(request),
            limit=limits.check_page_size(request.limit, tuning.PAGE_SIZE),
            offset=limits.check_offset(request.offset),
            token=request.page_token,
        )
        return pb.ListJobsResponse(
            jobs=[convert.job_view(job) for job in page.entries], next_page_token=page.next_token
        )

    async def cancel_job(self, request: pb.CancelJobRequest, _context: Any) -> pb.CancelJobResponse:
        job = await self._jobs.cancel(parse_job_id(request.job_id), limits.clean_error(request.reason))
        return pb.CancelJobResponse(job=convert.job_view(job))

    async def retry_job(self, request: pb.RetryJobRequest, _context: Any) -> pb.RetryJobResponse:
        job = await self._jobs.retry(parse_job_id(request.job_id), convert.attempts_granted(request))
        return pb.RetryJobResponse(job=convert.job_view(job))

    async def prioritize_job(
        self, request: pb.PrioritizeJobRequest, _context: Any
    ) -> pb.PrioritizeJobResponse:
        job = await self._jobs.prioritize(parse_job_id(request.job_id), request.priority)
        return pb.PrioritizeJobResponse(job=convert.job_view(job))

    async def delete_job(self, request: pb.DeleteJobRequest, _context: Any) -> pb.DeleteJobResponse:
        await self._jobs.delete(parse_job_id(request.job_id))
        return pb.DeleteJobResponse()

    async def pause_dispatch(
        self, request: pb.PauseDispatchRequest, _context: Any
    ) -> pb.PauseDispatchResponse:
        await self._pause.pause(_topic(request.topic), limits.clean_error(request.reason))
        return pb.PauseDispatchResponse()

    async def resume_dispatch(
        self, request: pb.ResumeDispatchRequest, _context: Any
    ) -> pb.ResumeDispatchResponse:
        await self._pause.resume(_topic(request.topic))
        return pb.ResumeDispatchResponse()

    async def get_dispatch_status(
        self, _request: pb.GetDispatchStatusRequest, _context: Any
    ) -> pb.GetDispatchStatusResponse:
        state = await self._pause.status()
        everything = state.everything
        return pb.GetDispatchStatusResponse(
            paused=everything is not None,
            reason=everything.reason if everything else "",
            paused_at=convert.timestamp(everything.since if everything else None),
            topics=[
                pb.PausedTopic(topic=topic, reason=pause.reason, paused_at=convert.timestamp(pause.since))
                for topic, pause in state.topics.items()
            ],
        )


def _topic(name: str) -> str | None:
    return limits.check_topic(name) if name else None
