"""The RPCs of producers."""

from __future__ import annotations

import asyncio
from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server import tuning
from pulse_server.domain import limits
from pulse_server.domain.errors import InvalidArgument, PulseError
from pulse_server.domain.jobs import NewJob, Submitted
from pulse_server.service.submissions import Submissions
from pulse_server.transport.grpc import convert
from pulse_server.transport.grpc.boundary import refusal
from pulse_server.turns import each_in_turns


class Producer:
    def __init__(self, submissions: Submissions) -> None:
        self._submissions = submissions

    async def submit_job(self, request: pb.SubmitJobRequest, _context: Any) -> pb.SubmitJobResponse:
        (answer,) = await self._submissions.submit([convert.new_job(request)])
        if isinstance(answer, PulseError):
            raise answer
        return pb.SubmitJobResponse(job_id=answer.job_id, duplicate=answer.duplicate)

    async def submit_jobs(self, request: pb.SubmitJobsRequest, _context: Any) -> pb.SubmitJobsResponse:
        limits.check_count("jobs", len(request.jobs), limits.MAX_JOBS_PER_SUBMIT)
        good: list[NewJob] = []
        # Not the errors themselves: their tracebacks have this frame, and each would keep the other.
        refused: list[pb.SubmitResult | None] = []
        submitted: list[Submitted | PulseError] = []
        size = entries = 0
        ids_are_kept = request.brief
        for wire_job in request.jobs:
            if entries >= tuning.TURN_ENTRIES:
                entries = 0
                await asyncio.sleep(0)  # others have their turn
            entries += 1
            try:
                job = convert.new_job(wire_job)
            except InvalidArgument as error:
                refused.append(_result(error))
            else:
                good.append(job)
                refused.append(None)
                ids_are_kept = ids_are_kept and job.id == wire_job.job_id
                # A part at a time: the request itself stays in memory until it is answered.
                size += len(job.payload)
                if job.metadata:
                    entries += len(job.metadata)
                if size >= tuning.COMMIT_BYTES:
                    submitted += await self._submissions.submit(good)
                    size, good = 0, []
        submitted += await self._submissions.submit(good)
        if ids_are_kept and len(submitted) == len(refused) and all(map(_is_inserted, submitted)):
            return pb.SubmitJobsResponse(all_inserted=True)
        rest = iter(submitted)
        return pb.SubmitJobsResponse(
            results=await each_in_turns(
                lambda one: _result(next(rest)) if one is None else one, refused, tuning.TURN_ENTRIES
            )
        )


def _is_inserted(answer: Submitted | PulseError) -> bool:
    return isinstance(answer, Submitted) and not answer.duplicate


def _result(answer: Submitted | PulseError) -> pb.SubmitResult:
    if isinstance(answer, PulseError):
        return pb.SubmitResult(refusal=refusal(answer))
    return pb.SubmitResult(job_id=answer.job_id, duplicate=answer.duplicate)
