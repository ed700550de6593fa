"""Workers: the bytes that wait for them, their sessions, and groups of them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from pulse_server.dispatch.rules import (
    CLOSING,
    FROZEN,
    NO_FACTS,
    STOPPING,
    UNREAD,
    ConnectedWorker,
    WorkerFacts,
    WorkerState,
)
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.reports import CLAIM_BYTES, Slots
from pulse_server.jobs.rules import Claim, ClaimedJob

# ---------------------------------------------------------------- outbox
# The outbox of one worker: claimed jobs that wait to be sent, in the batches in which they were claimed.

# Bounds of one stream message: well below the 4 MiB that a default gRPC client receives.
STREAM_MESSAGE_JOBS = 1000
STREAM_MESSAGE_BYTES = 2 * 1024 * 1024


class WaitingBatch(NamedTuple):
    """Jobs of one claim, made at that moment on the monotonic clock."""

    claimed_at: float
    jobs: Sequence[ClaimedJob]
    payload_bytes: int
    weight: int
    """About how many bytes they add to a message, as other fields are bounded and small."""


NOTHING = WaitingBatch(0.0, (), 0, 0)


class Outbox:
    """Jobs in the order of their assignment. A batch that fits into a message is not looked into."""

    def __init__(self) -> None:
        self._batches: deque[WaitingBatch] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __iter__(self) -> Iterator[ClaimedJob]:
        return (job for batch in self._batches for job in batch.jobs)

    def add(self, jobs: Sequence[ClaimedJob], claimed_at: float) -> WaitingBatch:
        batch = _batch_of(claimed_at, jobs)
        self._batches.append(batch)
        return batch

    def take(self, most_jobs: int) -> WaitingBatch:
        """Remove and return the jobs of the next message, with the time of their oldest claim."""
        if not self._batches:
            return NOTHING
        if len(self._batches) == 1 and _fits(self._batches[0], most_jobs):
            return self._batches.popleft()
        jobs: list[ClaimedJob] = []
        taken: list[WaitingBatch] = []
        left = STREAM_MESSAGE_BYTES
        while self._batches and len(jobs) < most_jobs and left > 0:
            batch = self._take_first(most_jobs - len(jobs), left)
            taken.append(batch)
            jobs += batch.jobs
            left -= batch.weight
        # Not the time of the first batch: a slower statement may return after a newer one.
        claimed_at = min([batch.claimed_at for batch in taken])
        return WaitingBatch(
            claimed_at, jobs, sum([batch.payload_bytes for batch in taken]), STREAM_MESSAGE_BYTES - left
        )

    def _take_first(self, most_jobs: int, most_bytes: int) -> WaitingBatch:
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


def _fits(batch: WaitingBatch, most_jobs: int) -> bool:
    return len(batch.jobs) <= most_jobs and batch.weight <= STREAM_MESSAGE_BYTES


def _batch_of(claimed_at: float, jobs: Sequence[ClaimedJob]) -> WaitingBatch:
    payload_bytes = sum([len(job.payload) for job in jobs])
    metadata_bytes = sum([_metadata_bytes(job.metadata) for job in jobs if job.metadata])
    step_bytes = sum([step.stored_bytes for job in jobs if job.steps for step in job.steps])
    return WaitingBatch(claimed_at, jobs, payload_bytes, payload_bytes + metadata_bytes + step_bytes)


def _metadata_bytes(metadata: Mapping[str, str]) -> int:
    return sum([len(key.encode()) + len(value.encode()) for key, value in metadata.items()])


# ---------------------------------------------------------------- backlog
# The backlog: the payloads that are leased to workers of this server and not sent yet.

# Payloads waiting for one worker: two messages, so that the next is ready when the last has left.
SESSION_BYTES = 4 * 1024 * 1024
# Payloads waiting for all workers of this server.
ALL_BYTES = 64 * 1024 * 1024


class Backlog:
    """Bounds the payloads that are leased and wait to be sent, per worker and in total. ADR-0038

    `shrunk` is called when a worker that had reached its share may get jobs again.
    """

    def __init__(self, shrunk: Callable[[], object]) -> None:
        self._shrunk = shrunk
        self._waiting = 0

    @property
    def share(self) -> int:
        """The bytes that may wait for one worker now. Once half of the total is used, a worker with waiting
        bytes gets nothing more: slow readers leave the other half to the rest."""
        if self._waiting < ALL_BYTES // 2:
            return SESSION_BYTES
        return 1 if self._waiting < ALL_BYTES else 0

    def add(self, count: int) -> None:
        self._waiting += count

    def remove(self, count: int, *, was_full: bool) -> None:
        """Count bytes off that were sent or dropped. `was_full`: their worker had reached its share."""
        is_short = self._waiting >= ALL_BYTES // 2
        self._waiting -= count
        if was_full or is_short:
            self._shrunk()


# ---------------------------------------------------------------- sessions
# A session: one connected worker, the jobs it holds, and the jobs waiting to be sent to it.


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
        # How many jobs this worker gets in a row, before the next worker's turn.
        # docs/figures.md#dealing-jobs-to-workers
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
            self.worker_id,
            topics,
            self.capacity,
            self.connected_at,
            0,
            self.facts,
            self.concurrency,
            self.hindrance,
            self.run_id,
            self.can_stop,
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


# ---------------------------------------------------------------- groups
# Groups: the workers that want the same topics share one claim. And the free slots in them.
#
# Few jobs are spread over many workers, so that each starts at once. A claim that fills all its slots is
# packed: spread, a deep backlog would cost a message for every two jobs. Fast handlers get a burst of a
# few milliseconds. docs/figures.md#dealing-jobs-to-workers

Item = TypeVar("Item")

# Compare at most this many items of equal rank; ordering is exact up to this size.
COMPARED = 8
# A burst still reaches several workers, should the next job of a fast handler be a slow one.
BURST_MOST = 50

_free = attrgetter("free")
_free_to_run = attrgetter("free_to_run")


class Ranking(Generic[Item]):
    """Finds the item with the most free slots without looking at every item.

    docs/figures.md#free-slots-by-topic

    An item's rank is the power of two of its free slots. Items of a rank are ordered by last `put`.
    """

    __slots__ = ("_rank_of", "_ranks")

    def __init__(self) -> None:
        self._ranks: dict[int, dict[Item, None]] = {}
        self._rank_of: dict[Item, int] = {}

    def __bool__(self) -> bool:
        return bool(self._rank_of)

    @property
    def highest(self) -> int:
        """The highest rank; 0 if no item has a free slot."""
        return max(self._ranks, default=0)

    @property
    def only(self) -> Item | None:
        """The item with free slots, if there is no other."""
        return next(iter(self._rank_of)) if len(self._rank_of) == 1 else None

    def put(self, item: Item, rank: int) -> None:
        """Put the item at the end of its rank. Rank 0: no free slot."""
        if rank == self._rank_of.get(item, 0) and len(self._rank_of) < 2:
            return
        self.remove(item)
        if rank:
            self._rank_of[item] = rank
            self._ranks.setdefault(rank, {})[item] = None

    def remove(self, item: Item) -> None:
        if (rank := self._rank_of.pop(item, 0)) == 0:
            return
        members = self._ranks[rank]
        del members[item]
        if not members:
            del self._ranks[rank]

    def move_to_end(self, item: Item) -> None:
        """Move the item behind all other items of its rank."""
        self.put(item, self._rank_of.get(item, 0))

    def best_few(self) -> list[Item]:
        """The first COMPARED items of the highest rank."""
        return list(islice(self._ranks[self.highest], COMPARED)) if self._ranks else []

    def best_first(self, free: Callable[[Item], int]) -> Iterator[Item]:
        """All items, lazily. Nothing may be put during the iteration."""
        if len(self._rank_of) == 1:
            yield from self._rank_of
            return
        for rank in sorted(self._ranks, reverse=True):
            members = iter(self._ranks[rank])
            while compared := list(islice(members, COMPARED)):
                yield from sorted(compared, key=free, reverse=True)


def _rank(free: int) -> int:
    """1, 2 to 3, 4 to 7, 8 to 15: within a rank none has twice as many free slots as another."""
    return free.bit_length()


class Group:
    """The sessions that want the same topics, and the failures of their last claims."""

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.sessions: dict[Session, None] = {}
        self._ranking: Ranking[Session] = Ranking()
        # The sessions that would start another job at once.
        self._free_to_run: set[Session] = set()
        self.is_claiming = False
        # Claims that failed in a row, and until when the next one waits, on the loop's clock.
        self.failures = 0
        self.rests_until = 0.0

    def add(self, session: Session) -> None:
        self.sessions[session] = None
        self.rank_again(session)

    def remove(self, session: Session) -> None:
        del self.sessions[session]
        self._ranking.remove(session)
        self._free_to_run.discard(session)

    def rank_again(self, session: Session) -> None:
        """The session's free slots may have changed."""
        self._ranking.put(session, _rank(session.free))
        if session.free_to_run:
            self._free_to_run.add(session)
        else:
            self._free_to_run.discard(session)

    @property
    def has_slots(self) -> bool:
        return bool(self._ranking)

    @property
    def has_slots_that_run(self) -> bool:
        """Whether a job would start at once."""
        return bool(self._free_to_run)

    @property
    def rank(self) -> int:
        """The rank of the worker with the most free slots."""
        return self._ranking.highest

    @property
    def free(self) -> int:
        """The free slots of the worker that has the most."""
        return max((session.free for session in self._ranking.best_few()), default=0)

    def count_slots(self, most: int, *, that_run: bool) -> int:
        """Count the free slots, or only slots whose jobs would start at once, up to `most`."""
        free = 0
        for session in self._free_to_run if that_run else self._ranking.best_first(_free):
            free += session.free_to_run if that_run else session.free
            if free >= most:
                return most
        return free

    def slots(self, most: int) -> list[Session]:
        """Free slots, one entry each, dealt in rounds, so that few jobs spread over many workers.

        In each round a worker gets one burst: one job, or as many as its handlers run within a moment.
        """
        return _dealt(self._enough_sessions(most), most, attrgetter("burst"))

    def slots_that_run(self, most: int) -> list[Session]:
        """Do the same with slots whose jobs would start at once."""
        return _dealt(self._enough_sessions(most, _free_to_run), most, attrgetter("burst"))

    def slots_that_run_first(self, most: int) -> tuple[list[Session], int]:
        """Free slots, and how many start a job at once. The latter come first."""
        running = self.slots_that_run(most)
        taken = Counter(running)
        left = [(free - taken[session], session) for free, session in self._enough_sessions(most)]
        ahead = _dealt([pair for pair in left if pair[0] > 0], most - len(running), attrgetter("burst"))
        return running + ahead, len(running)

    def packed_slots(self, slots: Sequence[Session], most: int) -> list[Session]:
        """The order for a claim that fills all of `slots`: the longest burst to each worker.

        docs/figures.md#dealing-jobs-to-workers

        Empty if it would change nothing: fewer slots than `most` are all filled in either order.
        """
        if len(slots) < most:
            return []
        packed = _dealt(self._enough_sessions(most), most, lambda _: BURST_MOST)
        return packed if packed != slots else []

    def _enough_sessions(
        self, most: int, free_of: Callable[[Session], int] = _free
    ) -> list[tuple[int, Session]]:
        """The sessions with the most free slots, best first: as many as get a job in the first round."""
        found: list[tuple[int, Session]] = []
        dealt = 0
        for session in self._ranking.best_first(_free):
            if dealt >= most and len(found) >= COMPARED:
                break
            if free := free_of(session):
                found.append((free, session))
                dealt += min(free, session.burst)
        found.sort(key=_free_of_pair, reverse=True)
        return found


def _dealt(left: list[tuple[int, Session]], most: int, burst_of: Callable[[Session], int]) -> list[Session]:
    """Deal out free slots in rounds of one burst each. `left` has each session's free slots."""
    slots: list[Session] = []
    while left and len(slots) < most:
        rest = []
        for free, session in left:
            burst = burst_of(session)
            slots += [session] * min(free, burst)
            if free > burst:
                rest.append((free - burst, session))
        left = rest
    return slots[:most]


def _free_of_pair(pair: tuple[int, Session]) -> int:
    return pair[0]


def best_first(groups: Sequence[Group]) -> Sequence[Group]:
    """The groups in the order of their turns; groups whose claims fail come last.

    In order of arrival, the first group of a topic could take all its jobs.
    docs/figures.md#dealing-jobs-to-workers, docs/figures.md#failing-and-slow-claims
    """
    return groups if len(groups) < 2 else sorted(groups, key=_turn)


def _turn(group: Group) -> tuple[bool, int]:
    return group.failures > 0, -group.free


def slots_for(slots: Sequence[Session], packed: Sequence[Session] = ()) -> Slots:
    """The free slots in the form that a claim takes. `packed` are slots of the same sessions."""
    sessions = list(dict.fromkeys(slots))
    index = {session: number for number, session in enumerate(sessions)}
    return Slots(
        workers=[session.worker_id for session in sessions],
        confirms=[session.speaks_batches for session in sessions],
        order=[index[session] for session in slots],
        most_bytes=min(CLAIM_BYTES, sum(session.free_bytes for session in sessions)),
        packed=[index[session] for session in packed],
        # All jobs together fit into the smallest share, so no worker gets more than its share.
        packed_bytes=min((session.free_bytes for session in packed), default=0),
    )


@contextmanager
def reserved(slots: Sequence[Session], packed: Sequence[Session] = ()) -> Iterator[None]:
    """Keep the slots free of other jobs for the length of the block, whichever order will count."""
    if len(slots) == 1:  # as for most submits: a Counter would cost more than all the rest
        counts = {slots[0]: 1}
    else:
        counts = Counter(slots) | Counter(packed) if packed else Counter(slots)
    _reserve(counts, 1)
    try:
        yield
    finally:
        _reserve(counts, -1)


def _reserve(counts: Mapping[Session, int], sign: int) -> None:
    for session, count in counts.items():
        session.reserve(sign * count)


def find_slots(
    jobs: Sequence[NewJob], groups_for: Callable[[str], Iterator[Group]]
) -> tuple[list[Session | None], dict[Group, set[str]]]:
    """A slot or None for each job, and the groups that were chosen, with the topics they were chosen for.

    A job that starts at once gets a slot in the first group of its topic that has one, the most urgent first.
    """
    rests: dict[Group, list[Session]] = {}
    lines: dict[str, Iterator[Group]] = {}
    first: dict[str, Group | None] = {}
    chosen: dict[Group, set[str]] = {}
    slots: list[Session | None] = [None] * len(jobs)
    positions = [position for position, job in enumerate(jobs) if job.starts_at_once]
    for position in sorted(positions, key=lambda position: -jobs[position].priority):
        topic = jobs[position].topic
        if topic not in lines:
            lines[topic] = groups_for(topic)
            first[topic] = next(lines[topic], None)
        while (group := first[topic]) is not None:
            if group not in rests:
                rests[group] = group.slots(len(jobs))[::-1]
            if rests[group]:
                slots[position] = rests[group].pop()
                chosen.setdefault(group, set()).add(topic)
                break
            first[topic] = next(lines[topic], None)
    return slots, chosen
