"""The RPCs of reports: take the results of attempts."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from pulse.v1 import pulse_pb2 as pb
from pulse_server.dispatch.roster import Roster
from pulse_server.domain import bounds
from pulse_server.domain.errors import InvalidArgument, PulseError
from pulse_server.domain.ids import parse_id
from pulse_server.domain.jobs import Claim
from pulse_server.domain.reports import Report, claim_of
from pulse_server.service.reports import Reports
from pulse_server.transport.grpc import convert_work
from pulse_server.transport.grpc.boundary import refusal
from pulse_server.transport.grpc.worker_ids import binds_worker_id, calling_user, is_own, own_worker_id
from pulse_server.turns import TURN_ENTRIES, each_in_turns, in_turns

_NO_WORKER = "?"
_new_tuple = tuple.__new__


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


class Results(NamedTuple):
    """The results in a report."""

    reports: list[Report]
    """The readable results, in the order of the request."""
    unreadable: dict[int, pb.Refusal]
    """The unreadable results, by their index in the request."""

    def claims(self) -> list[Claim]:
        return [report if isinstance(report, Claim) else report.claim for report in self.reports]

    async def refused(self, answers: Sequence[PulseError | None]) -> list[pb.RefusedResult]:
        """Name the results that do not count: unreadable ones, and reports that have an error as answer."""
        indexes = range(len(self.reports) + len(self.unreadable))
        read = [index for index in indexes if index not in self.unreadable]
        errors = {index: error for index, error in zip(read, answers, strict=True) if error is not None}

        def name(index: int) -> pb.RefusedResult:
            why = self.unreadable.get(index)
            return pb.RefusedResult(index=index, refusal=why if why is not None else refusal(errors[index]))

        return await each_in_turns(name, sorted([*self.unreadable, *errors]), TURN_ENTRIES)


async def read_results(
    request: pb.ReportResultsRequest, known: Container[str], max_result_bytes: int
) -> Results:
    """Read the results. Known ids are not checked again: the server has sent them to its workers."""
    worker_id = bounds.check_worker_id(request.worker_id)
    results = Results([], {})
    add, returned = results.reports.append, dict(request.returned)
    async for some in in_turns(request.results, TURN_ENTRIES):
        for result in some:
            job_id, attempt, run = result.job_id, result.attempt, result.run
            value = returned.get(len(results.reports) + len(results.unreadable)) if returned else None
            if result.success and attempt > 0 and run > 0 and job_id in known and value is None:
                # Claim(…), without calling a Python function: the call would be a thirtieth of the
                # server's work for a job in a drain.
                add(_new_tuple(Claim, (job_id, worker_id, attempt, run)))
                continue
            try:
                add(convert_work.result(result, worker_id, known, value, max_result_bytes))
            except InvalidArgument as error:
                index = len(results.reports) + len(results.unreadable)
                results.unreadable[index] = refusal(error)  # not the error: its traceback holds this frame
    return results
