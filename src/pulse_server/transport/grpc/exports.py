"""ExportJobs: finished jobs as a stream. SearchJobs: jobs by a part of what they have."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument
from pulse_server.base.loops import each_in_turns
from pulse_server.doors import boundary
from pulse_server.doors.addresses import peer_address
from pulse_server.doors.admission import Responses
from pulse_server.doors.callers import calling_user
from pulse_server.doors.quotas import CostlyCalls
from pulse_server.jobs import messages
from pulse_server.jobs.rules import TERMINAL, JobStatus, Step
from pulse_server.reads.exports import ExportFilter, ExportPage, Exports, Walk
from pulse_server.reads.searches import Searches
from pulse_server.steps.rpcs import step_view

# Statements of exports at a time: fewer than the connections for reading, which others need as well.
EXPORT_READS = 2


class ExportRpcs:
    def __init__(self, exports: Exports, searches: Searches, responses: Responses) -> None:
        self._exports = exports
        self._searches = searches
        self._responses = responses
        # The turn is for one page: several exports take turns, and a caller that reads slowly has none.
        self._read = CostlyCalls(EXPORT_READS).limited(_read_next)

    async def search_jobs(self, request: pb.SearchJobsRequest, _context: Any) -> pb.SearchJobsResponse:
        found = await self._searches.search(
            request.text,
            messages.job_filter(request.filter),
            limit=bounds.check_page_size(request.limit, bounds.DEFAULT_PAGE_SIZE),
            token=request.page_token,
        )
        return pb.SearchJobsResponse(
            jobs=await each_in_turns(messages.job_view, found.jobs),
            compared=found.compared,
            compared_to=boundary.timestamp(found.compared_to),
            next_page_token=found.next_token,
        )

    async def export_jobs(
        self, request: pb.ExportJobsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Stream the jobs until nothing is left, or the caller disconnects."""
        walk = await self._exports.start(_wanted(request), request.page_token)
        caller = calling_user() or peer_address(context.peer())
        while not walk.is_done:
            page: ExportPage = await self._read(walk, context)
            message = pb.ExportJobsResponse(
                jobs=await each_in_turns(messages.job_view, page.jobs),
                steps=await each_in_turns(_steps_of_job, list(page.steps.items())),
                next_page_token=walk.token,
                finished_before=boundary.timestamp(walk.finished_before),
            )
            del page
            data = message.SerializeToString()
            del message
            await self._responses.send(data, caller, context)


async def _read_next(walk: Walk, _context: Any) -> ExportPage:
    return await walk.next()


def _steps_of_job(of_job: tuple[str, list[Step]]) -> pb.StepsOfJob:
    job_id, steps = of_job
    return pb.StepsOfJob(job_id=job_id, steps=[step_view(step, with_value=False) for step in steps])


def _wanted(request: pb.ExportJobsRequest) -> ExportFilter:
    statuses = messages.wanted_statuses(request) or TERMINAL
    for status in statuses - TERMINAL:
        finished = ", ".join(status for status in JobStatus if status in TERMINAL)
        raise InvalidArgument(
            "status", f"{status.value!r} is none of {finished}: only finished jobs are exported."
        )
    return ExportFilter(
        finished_before=_moment(request, "finished_before") or bounds.LAST_MOMENT,
        finished_since=_moment(request, "finished_since"),
        topics=messages.wanted_topics(request),
        statuses=statuses,
    )


def _moment(request: pb.ExportJobsRequest, field: str) -> datetime | None:
    if not request.HasField(field):  # type: ignore[arg-type]  # it has both
        return None
    return bounds.check_run_at(boundary.moment(getattr(request, field), field), field)
