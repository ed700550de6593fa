"""What waits to be sent to one worker: claimed jobs, in the parcels in which they were claimed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pulse_server.domain.jobs import Claim, ClaimedJob

# What one stream message carries at the most: well below the 4 MiB that a default gRPC client receives.
STREAM_MESSAGE_JOBS = 1000
STREAM_MESSAGE_BYTES = 2 * 1024 * 1024


class Parcel(NamedTuple):
    """Jobs of one claim, made at that moment on the monotonic clock."""

    claimed_at: float
    jobs: Sequence[ClaimedJob]
    payload_bytes: int
    weight: int
    """About how many bytes they add to a message, as other fields are bounded and small."""


NOTHING = Parcel(0.0, (), 0, 0)


class Outbox:
    """Jobs in the order of their assignment. A parcel that fits into a message is not looked into."""

    def __init__(self) -> None:
        self._parcels: deque[Parcel] = deque()

    def __bool__(self) -> bool:
        return bool(self._parcels)

    def __iter__(self) -> Iterator[ClaimedJob]:
        return (job for parcel in self._parcels for job in parcel.jobs)

    def add(self, jobs: Sequence[ClaimedJob], claimed_at: float) -> Parcel:
        parcel = _packed(claimed_at, jobs)
        self._parcels.append(parcel)
        return parcel

    def take(self, most_jobs: int) -> Parcel:
        """Remove and return the jobs of the next message, with the time of their oldest claim."""
        if not self._parcels:
            return NOTHING
        if len(self._parcels) == 1 and _fits(self._parcels[0], most_jobs):
            return self._parcels.popleft()
        jobs: list[ClaimedJob] = []
        taken: list[Parcel] = []
        left = STREAM_MESSAGE_BYTES
        while self._parcels and len(jobs) < most_jobs and left > 0:
            parcel = self._take_first(most_jobs - len(jobs), left)
            taken.append(parcel)
            jobs += parcel.jobs
            left -= parcel.weight
        # Not the time of the first: a slower statement may return jobs behind those of a newer one.
        claimed_at = min([parcel.claimed_at for parcel in taken])
        return Parcel(
            claimed_at, jobs, sum([parcel.payload_bytes for parcel in taken]), STREAM_MESSAGE_BYTES - left
        )

    def _take_first(self, most_jobs: int, most_bytes: int) -> Parcel:
        """Remove the first parcel, or as many of its jobs as there may be, until they reach the bytes."""
        parcel = self._parcels.popleft()
        claimed_at, jobs = parcel.claimed_at, parcel.jobs
        if len(jobs) <= most_jobs and parcel.weight <= most_bytes:
            return parcel
        count = weight = 0
        while count < min(most_jobs, len(jobs)) and weight < most_bytes:
            weight += _packed(claimed_at, jobs[count : count + 1]).weight
            count += 1
        if rest := jobs[count:]:
            self._parcels.appendleft(_packed(claimed_at, rest))
        return _packed(claimed_at, jobs[:count])

    def remove(self, is_wanted: Callable[[ClaimedJob], bool]) -> list[ClaimedJob]:
        """Remove and return these jobs."""
        removed = [job for job in self if is_wanted(job)]
        if removed:
            kept = [
                (parcel.claimed_at, [job for job in parcel.jobs if not is_wanted(job)])
                for parcel in self._parcels
            ]
            self._parcels = deque(_packed(claimed_at, jobs) for claimed_at, jobs in kept if jobs)
        return removed

    def remove_claim(self, claim: Claim) -> list[ClaimedJob]:
        """Remove and return the job of this claim, if it is here."""
        return self.remove(lambda job: job.id == claim.job_id and job.attempt == claim.attempt)


def _fits(parcel: Parcel, most_jobs: int) -> bool:
    return len(parcel.jobs) <= most_jobs and parcel.weight <= STREAM_MESSAGE_BYTES


def _packed(claimed_at: float, jobs: Sequence[ClaimedJob]) -> Parcel:
    payload_bytes = sum([len(job.payload) for job in jobs])
    metadata_bytes = sum([_metadata_bytes(job.metadata) for job in jobs if job.metadata])
    return Parcel(claimed_at, jobs, payload_bytes, payload_bytes + metadata_bytes)


def _metadata_bytes(metadata: Mapping[str, str]) -> int:
    return sum([len(key.encode()) + len(value.encode()) for key, value in metadata.items()])
