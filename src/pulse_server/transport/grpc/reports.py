"""The RPCs of reports: take the results of attempts."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.dispatch.roster import Roster
from pulse_server.domain import bounds
from pulse_server.domain.ids import parse_id
from pulse_server.domain.reports import claim_of
from pulse_server.service.reports import Reports
from pulse_server.transport.grpc import convert_work
from pulse_server.transport.grpc.results import read_results
from pulse_server.transport.grpc.worker_ids import binds_worker_id, calling_user, is_own, own_worker_id

_NO_WORKER = "?"


class ReportRpcs:
    """They need no stream of jobs, unlike the other RPCs of workers."""

    def __init__(self, roster: Roster, reports: Reports, max_result_bytes: int) -> None:
        self._roster = roster
        self._reports = reports
        self._max_result_bytes = max_result_bytes

    @binds_worker_id
    async def report_result(self, request: pb.ReportResultRequest, _context: Any) -> pb.ReportResultResponse:
        if not request.worker_id and calling_user() is not None:
            request.worker_id = await self._own_holder(parse_id(request.job_id))
        report = convert_work.report(request, self._max_result_bytes)
        self._roster.answered(request.worker_id, [claim_of(report)])
        (error,) = await self._reports.report([report])
        if error is not None:
            raise error
        return pb.ReportResultResponse()

    @binds_worker_id
    async def report_results(
        self, request: pb.ReportResultsRequest, _context: Any
    ) -> pb.ReportResultsResponse:
        bounds.check_count("results", len(request.results), bounds.MAX_RESULTS_PER_REPORT)
        results = await read_results(request, self._roster.held_jobs, self._max_result_bytes)
        # The worker has finished them, whether or not the reports are accepted: the next jobs can be claimed
        # while these are being committed.
        if request.capacity:
            self._roster.resize(request.worker_id, bounds.check_capacity(request.capacity))
        if request.run_seconds:
            self._roster.set_pace(request.worker_id, bounds.check_run_seconds(request.run_seconds))
        self._roster.answered(request.worker_id, results.claims())
        answers = await self._reports.report(results.reports)
        if not results.unreadable and not any(answers):  # the usual case: all were accepted
            return pb.ReportResultsResponse()
        return pb.ReportResultsResponse(refused=await results.refused(answers))

    async def _own_holder(self, job_id: str) -> str:
        """Return the holder or finisher of the job, for the original contract, which has no worker id.

        A job that a worker of another user holds is refused like a lost claim.
        """
        holder = await self._reports.holder(job_id)
        return holder if holder is not None and is_own(holder) else own_worker_id(_NO_WORKER)
