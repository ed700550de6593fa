"""Groups: the workers that want the same topics share one claim. And the free slots in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from typing import Generic, TypeVar

from pulse_server.dispatch.sessions import Session
from pulse_server.jobs.new_jobs import NewJob
from pulse_server.jobs.reports import CLAIM_BYTES, Slots

Item = TypeVar("Item")

# Compare at most this many items of equal rank; ordering is exact up to this size.
COMPARED = 8
# A burst still reaches several workers, should the next job of a fast handler be a slow one.
BURST_MOST = 50

_free = attrgetter("free")
_free_to_run = attrgetter("free_to_run")


class Ranking(Generic[Item]):
    """Finds the item with the most free slots without looking at every item. ADR-0044

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
        """The order for a claim that fills all of `slots`: the longest burst to each worker. ADR-0054

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

    In order of arrival, the first group of a topic could take all its jobs. ADR-0037, ADR-0046
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
