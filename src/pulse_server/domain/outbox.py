"""The outbox of one worker: claimed jobs that wait to be sent, in the batches in which they were claimed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pulse_server.jobs.rules import Claim, ClaimedJob

# Bounds of one stream message: well below the 4 MiB that a default gRPC client receives.
STREAM_MESSAGE_JOBS = 1000
STREAM_MESSAGE_BYTES = 2 * 1024 * 1024


class Batch(NamedTuple):
    """Jobs of one claim, made at that moment on the monotonic clock."""

    claimed_at: float
    jobs: Sequence[ClaimedJob]
    payload_bytes: int
    weight: int
    """About how many bytes they add to a message, as other fields are bounded and small."""


NOTHING = Batch(0.0, (), 0, 0)


class Outbox:
    """Jobs in the order of their assignment. A batch that fits into a message is not looked into."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __iter__(self) -> Iterator[ClaimedJob]:
        return (job for batch in self._batches for job in batch.jobs)

    def add(self, jobs: Sequence[ClaimedJob], claimed_at: float) -> Batch:
        batch = _batch_of(claimed_at, jobs)
        self._batches.append(batch)
        return batch

    def take(self, most_jobs: int) -> Batch:
        """Remove and return the jobs of the next message, with the time of their oldest claim."""
        if not self._batches:
            return NOTHING
        if len(self._batches) == 1 and _fits(self._batches[0], most_jobs):
            return self._batches.popleft()
        jobs: list[ClaimedJob] = []
        taken: list[Batch] = []
        left = STREAM_MESSAGE_BYTES
        while self._batches and len(jobs) < most_jobs and left > 0:
            batch = self._take_first(most_jobs - len(jobs), left)
            taken.append(batch)
            jobs += batch.jobs
            left -= batch.weight
        # Not the time of the first batch: a slower statement may return after a newer one.
        claimed_at = min([batch.claimed_at for batch in taken])
        return Batch(
            claimed_at, jobs, sum([batch.payload_bytes for batch in taken]), STREAM_MESSAGE_BYTES - left
        )

    def _take_first(self, most_jobs: int, most_bytes: int) -> Batch:
        """Remove the first batch, or as many of its jobs as there may be, until they reach the bytes."""
        batch = self._batches.popleft()
        claimed_at, jobs = batch.claimed_at, batch.jobs
        if len(jobs) <= most_jobs and batch.weight <= most_bytes:
            return batch
        count = weight = 0
        while count < min(most_jobs, len(jobs)) and weight < most_bytes:
            weight += _batch_of(claimed_at, jobs[count : count + 1]).weight
            count += 1
        if rest := jobs[count:]:
            self._batches.appendleft(_batch_of(claimed_at, rest))
        return _batch_of(claimed_at, jobs[:count])

    def remove(self, is_wanted: Callable[[ClaimedJob], bool]) -> list[ClaimedJob]:
        """Remove and return these jobs."""
        removed = [job for job in self if is_wanted(job)]
        if removed:
            kept = [
                (batch.claimed_at, [job for job in batch.jobs if not is_wanted(job)])
                for batch in self._batches
            ]
            self._batches = deque(_batch_of(claimed_at, jobs) for claimed_at, jobs in kept if jobs)
        return removed

    def remove_claim(self, claim: Claim) -> list[ClaimedJob]:
        """Remove and return the job of this claim, if it is here."""
        return self.remove(lambda job: job.id == claim.job_id and job.attempt == claim.attempt)


def _fits(batch: Batch, most_jobs: int) -> bool:
    return len(batch.jobs) <= most_jobs and batch.weight <= STREAM_MESSAGE_BYTES


def _batch_of(claimed_at: float, jobs: Sequence[ClaimedJob]) -> Batch:
    payload_bytes = sum([len(job.payload) for job in jobs])
    metadata_bytes = sum([_metadata_bytes(job.metadata) for job in jobs if job.metadata])
    step_bytes = sum([step.stored_bytes for job in jobs if job.steps for step in job.steps])
    return Batch(claimed_at, jobs, payload_bytes, payload_bytes + metadata_bytes + step_bytes)


def _metadata_bytes(metadata: Mapping[str, str]) -> int:
    return sum([len(key.encode()) + len(value.encode()) for key, value in metadata.items()])
