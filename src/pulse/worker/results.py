"""Encodes results and progress for a report.

Results as protobuf would, and faster: a drain reports a thousand at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from pulse import tuning
from pulse.handlers.context import reported_progress
from pulse.handlers.workflows import completes_in_transaction
from pulse.jobs.models import Reported
from pulse.outcomes import SUCCEEDED, Failed, Refused, Snoozed, Succeeded, Suspended
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.streams import batch_bounds
from pulse.worker.held_jobs import HeldJob

_OTHER_BYTES = 100


def unsent_progress(job: HeldJob) -> Reported | None:
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


def progress_size(job: HeldJob) -> int:
    """Return about how many bytes the unsent progress of the job takes."""
    reported = unsent_progress(job)
    if reported is None:
        return 0
    return len(reported.text) * 4 + len(reported.cursor or b"") + _OTHER_BYTES


def in_batches(jobs: Sequence[HeldJob], most: int) -> Iterator[Sequence[HeldJob]]:
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


def encode_results(jobs: Iterable[HeldJob]) -> bytes:
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


def _result(job: HeldJob) -> pb.Result:
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
