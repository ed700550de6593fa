"""A session: one connected worker, the jobs it holds, and the jobs waiting to be sent to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pulse_server.dispatch.backlog import Backlog
from pulse_server.domain.outbox import NOTHING, STREAM_MESSAGE_JOBS, Outbox
from pulse_server.domain.workers import (
    CLOSING,
    FROZEN,
    NO_FACTS,
    STOPPING,
    UNREAD,
    ConnectedWorker,
    WorkerFacts,
    WorkerState,
)
from pulse_server.jobs.rules import Claim, ClaimedJob


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to a worker."""

    jobs: Sequence[ClaimedJob] = ()
    claimed_at: float = 0.0  # of the oldest of the jobs, on the monotonic clock
    stops: tuple[Claim, ...] = ()
    recalled: frozenset[str] | None = None  # topics whose unstarted jobs the worker is to release; empty: all
    stops_worker: bool = False  # an operator stops the worker
    is_last: bool = False


class Session:
    """The server's side of one stream.

    `held` has every job that is leased to this worker, sent or not; the hub never leases more than
    `capacity`. A job is undelivered until its message is being sent: from then on the worker may have it.
    """

    def __init__(
        self,
        worker_id: str,
        topics: frozenset[str],
        capacity: int,
        *,
        speaks_batches: bool,
        run_id: str,
        backlog: Backlog,
        concurrency: int = 0,
        facts: WorkerFacts = NO_FACTS,
        can_stop: bool = False,
    ) -> None:
        self.worker_id = worker_id
        self.facts, self.run_id, self.can_stop = facts, run_id, can_stop
        self.topics = topics
        self.capacity = capacity
        self.concurrency = concurrency  # how many jobs it runs at once; 0: as many as it holds, or unknown
        # How many jobs this worker gets in a row, before the next worker's turn. ADR-0033
        self.burst = 1
        self.connected_at = datetime.now(UTC)
        # A worker of the original contract takes one job per message and cannot confirm a delivery.
        self.speaks_batches = speaks_batches
        self.held: dict[str, Claim] = {}
        # Slots kept for jobs that a statement in flight may return.
        self.reserved = 0
        # The set that a session adds itself to when its free slots may have changed.
        self._changed: set[Session] = set()
        self.is_closing = False
        self.is_on_probation = False
        # What an operator has ordered. With a state, the worker gets no jobs.
        self.state: WorkerState | None = None
        self._backlog = backlog
        # Payload bytes in the outbox or being sent.
        self._waiting_bytes = 0
        self._outbox = Outbox()
        self._sending = NOTHING
        self._stops: list[Claim] = []
        self._recalled: frozenset[str] | None = None
        self._stops_worker = False
        self._has_news = asyncio.Event()

    @property
    def takes_jobs(self) -> bool:
        return not self.is_closing and self.state is None

    @property
    def free(self) -> int:
        """The free slots."""
        if not self.takes_jobs or self._waiting_bytes >= self._backlog.share:
            return 0
        # Its lease expired though it is connected: it is frozen, or its event loop is blocked. With its full
        # capacity it would hold up batch after batch. One job at a time shows whether it is back.
        capacity = 1 if self.is_on_probation else self.capacity
        return max(0, capacity - len(self.held) - self.reserved)

    @property
    def free_to_run(self) -> int:
        """Free slots that start a job at once. Jobs in other free slots wait in the worker."""
        if not self.concurrency:
            return self.free
        return max(0, min(self.free, self.concurrency - len(self.held) - self.reserved))

    @property
    def hindrance(self) -> str:
        """Why `free` is less than the slots without a job. Empty: it is not."""
        is_unread = self._waiting_bytes >= self._backlog.share
        return CLOSING if self.is_closing else UNREAD if is_unread else FROZEN if self.is_on_probation else ""

    @property
    def free_bytes(self) -> int:
        """The payload bytes that may be claimed for this worker. It always gets one job, of any size."""
        return max(1, self._backlog.share - self._waiting_bytes)

    def as_connected(self, topics: tuple[str, ...]) -> ConnectedWorker:
        """Return the worker as operators see it. `topics` are its topics, sorted."""
        return ConnectedWorker(
            *(self.worker_id, topics, self.capacity, self.connected_at, 0, self.facts),
            *(self.concurrency, self.hindrance, self.run_id, self.can_stop),
        )

    def record_changes_in(self, changed: set[Session]) -> None:
        """Add this session to the set whenever its free slots may have changed, from now on."""
        self._changed = changed

    def resize(self, capacity: int) -> None:
        self.capacity = capacity
        self._changed.add(self)

    def reserve(self, slots: int) -> None:
        """Keep slots free for a statement in flight. A negative number frees them."""
        self.reserved += slots
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
        self.held.update([(job.id, job.claim) for job in jobs])
        size = self._outbox.add(jobs, claimed_at).payload_bytes
        self._waiting_bytes += size
        self._backlog.add(size)
        self._has_news.set()

    def holds(self, claim: Claim) -> bool:
        """Whether the claim is this worker's. Parts that the original contract omits count as equal."""
        held = self.held.get(claim.job_id)
        return held is not None and claim.covers(held)

    def settle(self, job_id: str) -> None:
        """Free the slot of this job."""
        self.held.pop(job_id, None)
        self._changed.add(self)

    def settle_all(self, job_ids: Collection[str]) -> None:
        """Free the slots that the jobs take."""
        held = self.held
        for job_id in job_ids:
            held.pop(job_id, None)
        self._changed.add(self)

    def stop_claim(self, claim: Claim) -> None:
        """The claim has ended: drop the job from the outbox, or notify the worker."""
        self.settle(claim.job_id)
        if unsent := self._outbox.remove_claim(claim):
            self._count_off(sum([len(job.payload) for job in unsent]))
            return
        self._stops.append(claim)
        self._has_news.set()

    def recall(self, topics: frozenset[str]) -> list[Claim]:
        """Ask the worker to release unstarted jobs of the topics; an empty set: of all topics.

        Returns the claims that were not sent yet.
        """
        if self.speaks_batches:
            is_all = not topics or (self._recalled is not None and not self._recalled)
            self._recalled = frozenset() if is_all else topics | (self._recalled or frozenset())
            self._has_news.set()
        return self._take_out(lambda job: not topics or job.topic in topics)

    def set_state(self, state: WorkerState | None) -> None:
        """Set what an operator has ordered. A worker is asked to stop once for each stream."""
        self.state = state
        self._changed.add(self)
        self._stops_worker = state is not None and state.name == STOPPING
        if self._stops_worker:
            self._has_news.set()

    def close(self) -> None:
        """Send nothing more: end the stream after the message that is being sent."""
        self.is_closing = True
        self._changed.add(self)
        self._has_news.set()

    def take_undelivered(self) -> list[Claim]:
        """Remove and return the claims that were leased to this worker but never sent to it.

        Excludes claims in a message whose sending failed: the worker may have read it. ADR-0043
        """
        self._count_off(self._sending.payload_bytes)
        self._sending = NOTHING
        return self._take_out(lambda job: True)

    def _take_out(self, is_wanted: Callable[[ClaimedJob], bool]) -> list[Claim]:
        jobs = self._outbox.remove(is_wanted)
        self._count_off(sum([len(job.payload) for job in jobs]))
        for job in jobs:
            self.settle(job.id)
        return [job.claim for job in jobs]

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """The messages to send, as there is something to send."""
        while True:
            if self._sending.jobs:
                self._count_off(self._sending.payload_bytes)
                self._sending = NOTHING
            if self.is_closing:
                yield Delivery(is_last=True)
                return
            if not (self._outbox or self._stops or self._stops_worker) and self._recalled is None:
                self._has_news.clear()
                await self._has_news.wait()
                continue
            stops, self._stops = tuple(self._stops), []
            recalled, self._recalled = self._recalled, None
            stops_worker, self._stops_worker = self._stops_worker, False
            # A worker of the original contract gets one job per message.
            self._sending = self._outbox.take(STREAM_MESSAGE_JOBS if self.speaks_batches else 1)
            yield Delivery(self._sending.jobs, self._sending.claimed_at, stops, recalled, stops_worker)

    def _count_off(self, size: int) -> None:
        """Subtract payload bytes that no longer wait."""
        was_full = self._waiting_bytes >= self._backlog.share
        self._waiting_bytes -= size
        self._changed.add(self)
        self._backlog.remove(size, was_full=was_full)


class Holders:
    """The sessions that hold each job: one, or two while a worker that lost its lease still has the job."""

    def __init__(self) -> None:
        self._sessions: dict[str, tuple[Session, ...]] = {}
        self.job_ids = self._sessions.keys()

    def add(self, job_id: str, session: Session) -> None:
        self._sessions[job_id] = (*self._sessions.get(job_id, ()), session)

    def add_all(self, job_ids: Collection[str], session: Session) -> None:
        if self.job_ids.isdisjoint(job_ids):  # nearly always
            self._sessions.update(dict.fromkeys(job_ids, (session,)))
        else:
            for job_id in job_ids:
                self.add(job_id, session)

    def remove(self, job_id: str, session: Session) -> None:
        others = tuple(other for other in self._sessions.pop(job_id, ()) if other is not session)
        if others:
            self._sessions[job_id] = others

    def held_by(self, claim: Claim) -> list[Claim]:
        """The claims that sessions hold and this one covers."""
        job_id = claim.job_id
        return [session.held[job_id] for session in self._sessions.get(job_id, ()) if session.holds(claim)]

    def free_slot(self, claim: Claim) -> tuple[Session, ...]:
        """Free the slot of a claim. Returns the sessions that held the job by it."""
        job_id = claim.job_id
        found = self._sessions.get(job_id, ())
        if len(found) == 1 and found[0].holds(claim):  # nearly always
            del self._sessions[job_id]
        else:
            found = tuple(session for session in found if session.holds(claim))
            for session in found:
                self.remove(job_id, session)
        for session in found:
            session.settle(job_id)
        return found

    def free_slots_of(self, session: Session, claims: Sequence[Claim]) -> list[Claim]:
        """Free the slots of claims that this session alone holds. Returns the other claims."""
        alone, sessions, held = (session,), self._sessions, session.held
        own: list[str] = []
        rest: list[Claim] = []
        for claim in claims:
            job_id = claim.job_id
            if held.get(job_id) == claim and sessions.get(job_id) == alone:
                del sessions[job_id]
                own.append(job_id)
            else:
                rest.append(claim)
        session.settle_all(own)
        return rest
