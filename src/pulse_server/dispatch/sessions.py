"""One connected worker: what it asks for, what it holds, what waits to be sent to it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pulse_server import tuning
from pulse_server.dispatch.backlog import Backlog
from pulse_server.domain.jobs import Claim, ClaimedJob


@dataclass(frozen=True, slots=True)
class Parcel:
    """What goes to a worker in one message."""

    jobs: tuple[ClaimedJob, ...] = ()
    claimed_at: float = 0.0  # of the oldest of the jobs, on the monotonic clock
    stops: tuple[Claim, ...] = ()
    recalled: frozenset[str] | None = None  # topics whose unstarted jobs are to be released; empty: all
    is_last: bool = False


class Session:
    """The server's side of one stream.

    `held` counts every job that is leased to this worker, sent or not; the hub never leases more than
    `capacity`. A job is undelivered until its message is on its way: from then on the worker may have it.
    """

    def __init__(
        self,
        worker_id: str,
        topics: frozenset[str],
        capacity: int,
        *,
        speaks_batches: bool,
        run_id: str = "",
        backlog: Backlog | None = None,
    ) -> None:
        self.worker_id = worker_id
        self.run_id = run_id
        self.topics = topics
        self.capacity = capacity
        # How many jobs go to this worker in a row, before the next worker's turn (docs/adr/0033).
        self.stint = 1
        self.connected_at = datetime.now(UTC)
        # A worker of the original contract takes one job per message and cannot confirm a delivery.
        self.speaks_batches = speaks_batches
        self.held: dict[str, int] = {}
        # Places for jobs that a statement under way may bring.
        self.reserved = 0
        # Where a session adds itself when its room may have changed.
        self._changed: set[Session] = set()
        self.is_closing = False
        self.is_on_probation = False
        self._backlog = backlog or Backlog()
        # Of payloads that wait in the outbox or are on their way.
        self._waiting_bytes = 0
        self._outbox: deque[tuple[float, ClaimedJob]] = deque()
        self._on_its_way: tuple[ClaimedJob, ...] = ()
        self._stops: list[Claim] = []
        self._recalled: frozenset[str] | None = None
        self._something_to_do = asyncio.Event()

    @property
    def free(self) -> int:
        if self.is_closing or self._waiting_bytes >= self._backlog.share:
            return 0
        # Silent past a lease, yet connected: frozen, or its event loop is blocked. Given all it asks for, it
        # would sit on one batch of jobs after another. One job at a time shows whether it is back.
        capacity = 1 if self.is_on_probation else self.capacity
        return max(0, capacity - len(self.held) - self.reserved)

    @property
    def free_bytes(self) -> int:
        """How many bytes of payloads may be claimed for this worker. It always gets one job, of any size."""
        return max(1, self._backlog.share - self._waiting_bytes)

    def tell_changes_to(self, changed: set[Session]) -> None:
        """Add this session to the set whenever its room may have changed, from now on."""
        self._changed = changed

    def resize(self, capacity: int) -> None:
        self.capacity = capacity
        self._changed.add(self)

    def reserve(self, places: int) -> None:
        """Keep so many places free for a statement under way; fewer again if the number is negative."""
        self.reserved += places
        self._changed.add(self)

    def put_on_probation(self) -> None:
        self.is_on_probation = True
        self._changed.add(self)

    def trust(self) -> None:
        if self.is_on_probation:
            self.is_on_probation = False
            self._changed.add(self)

    def assign(self, jobs: Sequence[ClaimedJob], claimed_at: float) -> None:
        self._changed.add(self)
        self.held.update([(job.id, job.attempt) for job in jobs])
        size = _payload_bytes(jobs)
        self._waiting_bytes += size
        self._backlog.add(size)
        self._outbox.extend([(claimed_at, job) for job in jobs])
        self._something_to_do.set()

    def holds(self, claim: Claim) -> bool:
        """Whether the claim is this worker's. Parts that the original contract leaves out count as equal."""
        job_id, worker_id, attempt = claim
        return (worker_id == self.worker_id or worker_id is None) and (
            attempt == self.held.get(job_id) or attempt is None
        )

    def settle(self, job_id: str) -> None:
        """The worker is done with this job, one way or another."""
        self.held.pop(job_id, None)
        self._changed.add(self)

    def stop_claim(self, claim: Claim) -> None:
        """The claim has ended: take the job out of the line, or have the worker told."""
        self.settle(claim.job_id)
        for entry in self._outbox:
            if entry[1].id == claim.job_id and entry[1].attempt == claim.attempt:
                self._outbox.remove(entry)
                self._count_off((entry[1],))
                return
        self._stops.append(claim)
        self._something_to_do.set()

    def recall(self, topics: frozenset[str]) -> list[Claim]:
        """Have the worker release what it has not started of these topics; of all if there are none.

        Returns the claims that were not sent yet.
        """
        if self.speaks_batches:
            is_all = not topics or (self._recalled is not None and not self._recalled)
            self._recalled = frozenset() if is_all else topics | (self._recalled or frozenset())
            self._something_to_do.set()
        return self._take_out([job for _, job in self._outbox if not topics or job.topic in topics])

    def close(self) -> None:
        """Send nothing more: end the stream after what is on its way."""
        self.is_closing = True
        self._changed.add(self)
        self._something_to_do.set()

    def take_undelivered(self) -> list[Claim]:
        """The claims of jobs that were leased to this worker but never sent to it.

        Not those in a message whose sending failed: the worker may have read it. ADR-0043
        """
        self._count_off(self._on_its_way)
        self._on_its_way = ()
        return self._take_out([job for _, job in self._outbox])

    def _take_out(self, jobs: Collection[ClaimedJob]) -> list[Claim]:
        taken = {job.id for job in jobs}
        self._outbox = deque(entry for entry in self._outbox if entry[1].id not in taken)
        self._count_off(jobs)
        for job in jobs:
            self.settle(job.id)
        return [Claim(job.id, self.worker_id, job.attempt) for job in jobs]

    async def parcels(self) -> AsyncIterator[Parcel]:
        """What to send, as it comes up."""
        while True:
            if self._on_its_way:
                self._count_off(self._on_its_way)
                self._on_its_way = ()
            if self.is_closing:
                yield Parcel(is_last=True)
                return
            if not self._outbox and not self._stops and self._recalled is None:
                self._something_to_do.clear()
                await self._something_to_do.wait()
                continue
            stops, self._stops = tuple(self._stops), []
            recalled, self._recalled = self._recalled, None
            taken = self._take_jobs()
            self._on_its_way = tuple([job for _, job in taken])
            # Not that of the first: a slower statement may bring jobs behind those of a newer one.
            claimed_at = min([since for since, _ in taken], default=0.0)
            yield Parcel(self._on_its_way, claimed_at, stops, recalled)

    def _count_off(self, jobs: Collection[ClaimedJob]) -> None:
        """The payloads of these jobs wait no more."""
        size = _payload_bytes(jobs)
        was_full = self._waiting_bytes >= self._backlog.share
        self._waiting_bytes -= size
        self._changed.add(self)
        self._backlog.remove(size, was_full=was_full)

    def _take_jobs(self) -> Collection[tuple[float, ClaimedJob]]:
        """The jobs of the next message, each with the time of its claim."""
        if not self._outbox:
            return ()
        if not self.speaks_batches:
            return (self._outbox.popleft(),)
        taken: list[tuple[float, ClaimedJob]] = []
        size = 0
        while self._outbox and len(taken) < tuning.STREAM_MESSAGE_JOBS and size < tuning.STREAM_MESSAGE_BYTES:
            entry = self._outbox.popleft()
            taken.append(entry)
            size += _weight(entry[1])
        return taken


def _payload_bytes(jobs: Iterable[ClaimedJob]) -> int:
    return sum([len(job.payload) for job in jobs])


def _weight(job: ClaimedJob) -> int:
    """About how many bytes the job adds to a message. What else it has is bounded and small."""
    if not job.metadata:
        return len(job.payload)
    return len(job.payload) + sum(
        len(key.encode()) + len(value.encode()) for key, value in job.metadata.items()
    )
