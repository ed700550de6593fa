"""Reports results to the server, in batches, until it has every result.

Results are encoded as protobuf would, and faster: a drain reports a thousand at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

import grpc
import grpc.aio

from pulse import failpoints, tuning
from pulse.error_text import describe
from pulse.errors import ClientClosed, InvalidArgument
from pulse.handlers.context import reported_progress
from pulse.handlers.workflows import completes_in_transaction
from pulse.jobs.models import Reported
from pulse.outcomes import SUCCEEDED, Failed, Refused, Snoozed, Succeeded, Suspended
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.servers import JitteredBackoff
from pulse.wire.streams import Coalescer, Line, batch_bounds
from pulse.worker.held_jobs import ClaimedJob, Shared
from pulse.worker.outcomes import log_failure

_OTHER_BYTES = 100


def unsent_progress(job: ClaimedJob) -> Reported | None:
    """Return the newest report of the job, unless the server has it."""
    reported = reported_progress(job.context)
    return None if reported is job.sent_progress else reported


def encode_progress(reported: Reported, index: int = 0) -> pb.ProgressReport:
    """Return the message. `index` is the position of the job in the claims of the request."""
    return pb.ProgressReport(
        index=index,
        fraction=reported.fraction,
        text=reported.text,
        cursor=reported.cursor,
        number=reported.number,
    )


def progress_size(job: ClaimedJob) -> int:
    """Return about how many bytes the unsent progress of the job takes."""
    reported = unsent_progress(job)
    if reported is None:
        return 0
    return len(reported.text) * 4 + len(reported.cursor or b"") + _OTHER_BYTES


def in_batches(jobs: Sequence[ClaimedJob], most: int) -> Iterator[Sequence[ClaimedJob]]:
    """Yield at most `most` jobs at a time, and no more progress than fits a request."""
    for begin, end in batch_bounds(map(progress_size, jobs), most, tuning.PROGRESS_BATCH_BYTES):
        yield jobs[begin:end]


# Of ReportResultsRequest: results (2), with a length; of Result: job_id (1) with a length, attempt (2),
# success (3) and run (10) as varints.
_RESULTS = b"\x12"
_SUCCESS = b"\x12%c\x0a%c%b\x10%c\x18\x01\x50%c"
_AROUND_THE_ID = 8  # bytes of a success: the key and length of the id, and three keys with values of one byte
_ONE_BYTE = 0x80  # smaller numbers are varints of one byte
_RETRY_AFTER = timedelta(minutes=1)
_NOT_COMMITTED = "The handler called ctx.complete, but its transaction was not committed."


def encode_results(jobs: Iterable[ClaimedJob]) -> bytes:
    """Return the bytes of the fields `results` and `returned` of a ReportResultsRequest, in order."""
    parts: list[bytes] = []
    returned: dict[int, bytes] = {}
    for job in jobs:
        job_id, attempt, run = job.job_id.encode(), job.attempt, job.run
        size = len(job_id) + _AROUND_THE_ID
        is_small = 0 < attempt < _ONE_BYTE and 0 < run < _ONE_BYTE and size < _ONE_BYTE
        in_transaction = completes_in_transaction(job.context)
        if job.outcome is not SUCCEEDED or in_transaction or not job_id or not is_small:
            if isinstance(job.outcome, Succeeded) and job.outcome.result is not None and not in_transaction:
                returned[len(parts)] = job.outcome.result
            data = _result(job).SerializeToString()
            parts.append(_RESULTS + _varint(len(data)) + data)
        else:
            parts.append(_SUCCESS % (size, len(job_id), job_id, attempt, run))
    if returned:
        parts.append(pb.ReportResultsRequest(returned=returned).SerializeToString())
    return b"".join(parts)


def _result(job: ClaimedJob) -> pb.Result:
    outcome = job.outcome
    result = pb.Result(job_id=job.job_id, attempt=job.attempt, run=job.run)
    if isinstance(outcome, Snoozed):
        result.error = outcome.reason
        result.snooze.FromTimedelta(outcome.delay)
    elif isinstance(outcome, Suspended):
        _suspend(result, outcome)
    elif isinstance(outcome, Failed):
        result.error = outcome.error
        result.discard = outcome.discard
        result.timed_out = outcome.timed_out
        if outcome.retry_after is not None:
            result.retry_after.FromTimedelta(outcome.retry_after)
            result.retry_after_is_policy = outcome.retry_after_is_policy
        result.in_transaction = completes_in_transaction(job.context)
    else:
        assert isinstance(outcome, Succeeded), f"job {job.job_id} is reported without an outcome"
        if completes_in_transaction(job.context):
            # It counts if the transaction was committed. Else the attempt has failed. ADR-0075
            result.error, result.in_transaction = _NOT_COMMITTED, True
        else:
            result.success = True
    # The server may have refused the progress: do not send it again.
    is_refused = isinstance(outcome, Refused)
    if not (result.success or is_refused) and (reported := unsent_progress(job)) is not None:
        result.progress.CopyFrom(encode_progress(reported))
    return result


def _suspend(result: pb.Result, outcome: Suspended) -> None:
    suspension = result.suspension
    suspension.step, suspension.signal = outcome.step, outcome.signal
    if outcome.delay is not None:
        suspension.delay.FromTimedelta(outcome.delay)
    # For a server that does not know it: a failure that is retried at that time.
    result.error = "This version of pulsed does not know sleeps and signals."
    result.retry_after.FromTimedelta(outcome.delay or _RETRY_AFTER)


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number >= _ONE_BYTE:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


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


# ---------------------------------------------------------------- reports


class Reporter:
    """Reports results in batches, and repeats each until the server has answered.

    A result is kept after its lease has expired: the server decides whether the claim still holds. A repeat
    is safe: the server answers the same result of the same claim with OK.
    """

    def __init__(self, shared: Shared, settled: Callable[[Iterable[ClaimedJob]], None]) -> None:
        """`settled` receives jobs that need no report any more."""
        connection = self._connection = shared.connection
        self._worker_id = shared.worker_id
        self._window = shared.window
        self._settled = settled
        self._is_failing = False
        self._line: Line[pb.ReportResultsResponse] = Line(
            connection, connection.stub.ReportResults, connection.stub.StreamReports
        )
        self._coalescer: Coalescer[ClaimedJob] = Coalescer(
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
    async def _send(self, jobs: list[ClaimedJob]) -> None:
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
    async def _try(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
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

    def _fail(self, job: ClaimedJob, sentence: str) -> None:
        """Report that the attempt failed with the server's sentence. Else its lease would expire."""
        error = InvalidArgument(f"pulsed refused the outcome of this attempt: {sentence}")
        job.outcome = Refused(describe(error))
        log_failure(job, error, job.outcome)
        self._coalescer.add(job)

    def _without_stopped(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        for job in jobs:
            if job.stop_reason:  # logged where it was stopped
                self._let_go([job], job.stop_reason)
        return [job for job in jobs if not job.stop_reason]

    def _let_go(self, jobs: Sequence[ClaimedJob], problem: str = "") -> None:
        for job in jobs:
            if job.span is not None:
                job.span.reported(problem)
        self._settled(jobs)

    def _note_failing(self, error: grpc.aio.AioRpcError) -> None:
        if not self._is_failing:
            self._is_failing = True
            reason = self._connection.translate(error).message
            logger.warning("Results cannot be reported, and are kept until pulsed answers: %s", reason)

    def _note_refused(self, job: ClaimedJob, sentence: str) -> None:
        logger.log(
            logging.INFO if job.stop_reason else logging.WARNING,
            "The result of job %s (%s) was refused: %s",
            job.job_id,
            job.handler.topic,
            sentence,
        )


def _size_of(job: ClaimedJob) -> int:
    outcome = job.outcome
    if outcome is SUCCEEDED or outcome is None:
        return _RESULT_BYTES
    if isinstance(outcome, Succeeded):
        return _RESULT_BYTES + len(outcome.result or b"")
    text = outcome.error if isinstance(outcome, Failed) else getattr(outcome, "reason", "")
    return _RESULT_BYTES + len(text) * (1 if text.isascii() else 4) + progress_size(job)
