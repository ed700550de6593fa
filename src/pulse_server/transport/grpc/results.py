"""Reads the results in a report, and names the refused results in the answer."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import bounds
from pulse_server.domain.errors import InvalidArgument, PulseError
from pulse_server.domain.jobs import Claim
from pulse_server.domain.reports import Report
from pulse_server.transport.grpc import convert_work
from pulse_server.transport.grpc.boundary import refusal
from pulse_server.turns import TURN_ENTRIES, each_in_turns, in_turns

_new_tuple = tuple.__new__


class Results(NamedTuple):
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
