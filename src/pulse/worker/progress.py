"""Sends what handlers report of their progress: with heartbeats, and with the end of an attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulse import tuning
from pulse.handlers.context import reported_progress
from pulse.handlers.progress import Reported
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.held_jobs import HeldJob

_OTHER_BYTES = 100


def unsent_progress(job: HeldJob) -> Reported | None:
    """Return the newest report of the job, unless the server has it."""
    reported = reported_progress(job.context)
    return None if reported is job.sent_progress else reported


def encode_progress(reported: Reported, index: int = 0) -> pb.ProgressReport:
    """Return the message. The index is that of the job in the claims of the request."""
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
    """Yield at most so many jobs at a time, and not more progress than a request should have."""
    begin = size = 0
    for end, job in enumerate(jobs):
        size += (more := progress_size(job))
        if end - begin == most or (size > tuning.PROGRESS_BATCH_BYTES and end > begin):
            yield jobs[begin:end]
            begin, size = end, more
    if begin < len(jobs):
        yield jobs[begin:]
