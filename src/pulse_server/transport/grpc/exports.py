"""ExportJobs: finished jobs as a stream."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import limits
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.status import TERMINAL, JobStatus
from pulse_server.domain.steps import Step
from pulse_server.reads.exports import ExportFilter, ExportPage, Exports, Walk
from pulse_server.transport.addresses import peer_address
from pulse_server.transport.grpc import convert_jobs, convert_times
from pulse_server.transport.grpc.convert_steps import step_view
from pulse_server.transport.grpc.costly_calls import CostlyCalls
from pulse_server.transport.grpc.responses import Responses
from pulse_server.transport.grpc.worker_ids import calling_user
from pulse_server.turns import each_in_turns

# Statements of exports at a time: fewer than the connections for reading, which others need as well.
EXPORT_READS = 2


class ExportRpcs:
    def __init__(self, exports: Exports, responses: Responses) -> None:
        self._exports = exports
        self._responses = responses
        # The turn is for one page: several exports take turns, and a caller that reads slowly has none.
        self._read = CostlyCalls(EXPORT_READS).limited(_read_next)

    async def export_jobs(
        self, request: pb.ExportJobsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Stream the jobs until nothing is left, or the caller disconnects."""
        walk = await self._exports.start(_wanted(request), request.page_token)
        caller = calling_user() or peer_address(context.peer())
        while not walk.is_done:
            page: ExportPage = await self._read(walk, context)
            message = pb.ExportJobsResponse(
                jobs=await each_in_turns(convert_jobs.job_view, page.jobs),
                steps=await each_in_turns(_steps_of_job, list(page.steps.items())),
                next_page_token=walk.token,
                finished_before=convert_times.timestamp(walk.finished_before),
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
    if request.status and request.status not in TERMINAL:
        finished = ", ".join(status for status in JobStatus if status in TERMINAL)
        raise InvalidArgument(
            "status", f"{request.status[:40]!r} is none of {finished}: only finished jobs are exported."
        )
    return ExportFilter(
        finished_before=_moment(request, "finished_before") or limits.LAST_MOMENT,
        finished_since=_moment(request, "finished_since"),
        topic=limits.check_topic(request.topic) if request.topic else None,
        statuses=frozenset({JobStatus(request.status)}) if request.status else TERMINAL,
    )


def _moment(request: pb.ExportJobsRequest, field: str) -> datetime | None:
    if not request.HasField(field):  # type: ignore[arg-type]  # it has both
        return None
    return limits.check_run_at(convert_times.moment(getattr(request, field), field), field)
