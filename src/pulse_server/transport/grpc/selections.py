"""The RPCs of selections: count the jobs that match a filter, and act on one batch of them."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import limits
from pulse_server.service.selections import Selections
from pulse_server.transport.grpc import convert_jobs, convert_times


class SelectionRpcs:
    def __init__(self, selections: Selections) -> None:
        self._selections = selections

    async def count_jobs(self, request: pb.CountJobsRequest, _context: Any) -> pb.CountJobsResponse:
        count, counted_at = await self._selections.count(convert_jobs.job_filter(request.filter))
        return pb.CountJobsResponse(count=count, counted_at=convert_times.timestamp(counted_at))

    async def cancel_jobs(self, request: pb.CancelJobsRequest, _context: Any) -> pb.CancelJobsResponse:
        batch = await self._selections.cancel(
            convert_jobs.job_filter(request.filter),
            limits.clean_error(request.reason),
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.CancelJobsResponse(
            canceled=batch.changed, next_page_token=batch.next_token, locked=batch.locked
        )

    async def retry_jobs(self, request: pb.RetryJobsRequest, _context: Any) -> pb.RetryJobsResponse:
        batch = await self._selections.retry(
            convert_jobs.job_filter(request.filter),
            convert_jobs.attempts_granted(request),
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
            fresh=request.fresh,
        )
        return pb.RetryJobsResponse(
            retried=batch.changed,
            next_page_token=batch.next_token,
            locked=batch.locked,
            held=batch.held,
        )

    async def prioritize_jobs(
        self, request: pb.PrioritizeJobsRequest, _context: Any
    ) -> pb.PrioritizeJobsResponse:
        batch = await self._selections.prioritize(
            convert_jobs.job_filter(request.filter),
            request.priority,
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.PrioritizeJobsResponse(
            prioritized=batch.changed, next_page_token=batch.next_token, locked=batch.locked
        )

    async def delete_jobs(self, request: pb.DeleteJobsRequest, _context: Any) -> pb.DeleteJobsResponse:
        batch = await self._selections.delete(
            convert_jobs.job_filter(request.filter),
            limit=limits.check_batch_size(request.limit),
            token=request.page_token,
        )
        return pb.DeleteJobsResponse(
            deleted=batch.changed, next_page_token=batch.next_token, locked=batch.locked
        )
