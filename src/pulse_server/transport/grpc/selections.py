"""The RPCs of selections: count the jobs that match a filter, and act on one batch of them."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.ids import parse_id
from pulse_server.doors import boundary
from pulse_server.jobs import messages
from pulse_server.service.selections import Selections


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
