"""Reports results to the server, in batches, until it has every result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import grpc
import grpc.aio

from pulse import failpoints, tuning
from pulse.error_text import describe
from pulse.errors import ClientClosed, InvalidArgument
from pulse.outcomes import SUCCEEDED, Failed, Refused, Succeeded
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.servers import JitteredBackoff
from pulse.wire.streams import Coalescer, Line
from pulse.worker.handler_errors import log_failure
from pulse.worker.held_jobs import HeldJob
from pulse.worker.results import encode_results, progress_size
from pulse.worker.window import Window

logger = logging.getLogger("pulse.worker")

_RESULT_BYTES = 64
# Refusals that do not concern the result: it is reported again later.
_LATER = frozenset(
    code.value[0]
    for code in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
)
# The refusal of a report that the server cannot accept, such as one with a delay of 20 years.
_UNREADABLE = grpc.StatusCode.INVALID_ARGUMENT.value[0]


class Reporter:
    """Reports results in batches, and repeats each until the server has answered.

    A result is kept after its lease has expired: the server decides whether the claim still holds. A repeat
    is safe: the server answers the same result of the same claim with OK.
    """

    def __init__(
        self,
        connection: Connection,
        worker_id: str,
        window: Window,
        settled: Callable[[Iterable[HeldJob]], None],
    ) -> None:
        """`settled` receives jobs that need no report any more."""
        self._connection = connection
        self._worker_id = worker_id
        self._window = window
        self._settled = settled
        self._is_failing = False
        self._line: Line[pb.ReportResultsResponse] = Line(
            connection, connection.stub.ReportResults, connection.stub.StreamReports
        )
        self._coalescer: Coalescer[HeldJob] = Coalescer(
            self._send,
            size_of=_size_of,
            most_items=tuning.REPORT_BATCH_JOBS,
            most_bytes=tuning.REPORT_BATCH_BYTES,
            in_flight=tuning.REPORTS_IN_FLIGHT,
        )
        self.add = self._coalescer.add
        """Report a job that has an outcome."""
        self.flushed = self._coalescer.flushed
        """Return once all results are reported."""

    async def close(self) -> None:
        """Stop reporting."""
        self._let_go(await self._coalescer.close(), "the worker stopped before it was reported")
        await self._line.close()

    @failpoints.before("worker.reporting")
    async def _send(self, jobs: list[HeldJob]) -> None:
        is_repeat = False
        try:
            async for _ in JitteredBackoff(tuning.RETRY_FIRST_SECONDS, tuning.RETRY_LONGEST_SECONDS):
                if is_repeat:
                    jobs = self._without_stopped(jobs)
                if not jobs or not (jobs := await self._try(jobs)):
                    return
                is_repeat = True
        except asyncio.CancelledError:
            self._let_go(jobs, "the worker stopped before the server had it")
            raise
        except ClientClosed as error:
            self._let_go(jobs, error.message)

    @failpoints.after("worker.reported")
    async def _try(self, jobs: list[HeldJob]) -> list[HeldJob]:
        """Report once. Returns the jobs to report again."""
        capacity = self._window.changed_size()
        message = pb.StreamReportsRequest()
        message.request.worker_id = self._worker_id
        message.request.capacity = capacity
        message.request.run_seconds = self._window.run_seconds
        message.request.MergeFromString(encode_results(jobs))
        try:
            response = await self._line.call(message)
        except grpc.aio.AioRpcError as error:
            self._note_failing(error)
            return jobs
        self._is_failing = False
        self._window.acknowledged(capacity)
        if not response.refused:
            self._let_go(jobs)
            return []
        refused = {item.index: item.refusal for item in response.refused}
        for index, job in enumerate(jobs):
            refusal = refused.get(index)
            if refusal is None:
                self._let_go([job])
            elif refusal.code in _LATER:
                # Report it again later, apart from the batch: the reason concerns this job alone.
                self._coalescer.add_later(job, tuning.RETRY_LONGEST_SECONDS)
            elif refusal.code == _UNREADABLE and not isinstance(job.outcome, Refused):
                self._fail(job, refusal.message)
            else:
                self._note_refused(job, refusal.message)
                self._let_go([job], refusal.message)
        return []

    def _fail(self, job: HeldJob, sentence: str) -> None:
        """Report that the attempt failed with the server's sentence. Else its lease would expire."""
        error = InvalidArgument(f"pulsed refused the outcome of this attempt: {sentence}")
        job.outcome = Refused(describe(error))
        log_failure(job, error, job.outcome)
        self._coalescer.add(job)

    def _without_stopped(self, jobs: list[HeldJob]) -> list[HeldJob]:
        for job in jobs:
            if job.stop_reason:  # logged where it was stopped
                self._let_go([job], job.stop_reason)
        return [job for job in jobs if not job.stop_reason]

    def _let_go(self, jobs: Sequence[HeldJob], problem: str = "") -> None:
        for job in jobs:
            if job.span is not None:
                job.span.reported(problem)
        self._settled(jobs)

    def _note_failing(self, error: grpc.aio.AioRpcError) -> None:
        if not self._is_failing:
            self._is_failing = True
            reason = self._connection.translate(error).message
            logger.warning("Results cannot be reported, and are kept until pulsed answers: %s", reason)

    def _note_refused(self, job: HeldJob, sentence: str) -> None:
        logger.log(
            logging.INFO if job.stop_reason else logging.WARNING,
            "The result of job %s (%s) was refused: %s",
            job.job_id,
            job.handler.topic,
            sentence,
        )


def _size_of(job: HeldJob) -> int:
    outcome = job.outcome
    if outcome is SUCCEEDED or outcome is None:
        return _RESULT_BYTES
    if isinstance(outcome, Succeeded):
        return _RESULT_BYTES + len(outcome.result or b"")
    text = outcome.error if isinstance(outcome, Failed) else getattr(outcome, "reason", "")
    return _RESULT_BYTES + len(text) * (1 if text.isascii() else 4) + progress_size(job)
