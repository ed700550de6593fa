"""Floors: the earliest submit time of claimable jobs per level, as this server knows it. ADR-0055

A level is a topic and a priority. While a session holds a transaction open, vacuum cannot remove
the index entries of finished jobs; running jobs have entries too. A claim that starts at the head
of the topic walks all these entries. A claim that starts at the floors of the levels skips them.

A lost floor costs a full look, which is a claim without floors. The next full look finds a job that
slipped below a floor. Each tick makes a full look, unless it is costly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence

from pulse_server.base.loops import lease_clock
from pulse_server.jobs.rules import ClaimedJob, Level

# A bound is this much lower than its floor. It covers the time until a statement with bounds
# begins, and the travel time of another server's announcement. Own submits announce their age.
# Behind a slow database it is twice the time of the slowest claim with bounds in the last minute:
# jobs below the bound of a late claim would be overtaken.
MARGIN_SECONDS = 0.2
SLOWNESS_REMEMBERED_SECONDS = 60.0
# A claim with more levels is a full look: it would have to probe every level.
MOST_LEVELS = 8
# A claim for more topics is a full look too. At most TOPICS_REMEMBERED topics are kept, some 600
# bytes each.
MOST_TOPICS_OF_CLAIM = 256
TOPICS_REMEMBERED = 10_000


class _Level:
    """No job of the level that was submitted before `floor` is claimable. Moments are on the lease clock."""

    __slots__ = ("floor", "low", "lowered_at")

    def __init__(self, floor: float) -> None:
        self.floor = floor
        self.low = math.inf
        self.lowered_at = -math.inf

    def lower(self, floor: float, now: float) -> None:
        self.floor = min(self.floor, floor)
        self.low = min(self.low, floor)
        self.lowered_at = now

    def lift(self, floor: float, sent_at: float) -> None:
        """A claim that was sent then found nothing before the floor."""
        if self.lowered_at >= sent_at:  # the claim may not have seen the announced job
            floor = min(floor, self.low)
        else:
            self.low = math.inf
        self.floor = max(self.floor, floor)


class _Topic:
    __slots__ = ("forgotten_at", "is_known", "levels", "rest", "unknown_below")

    def __init__(self) -> None:
        self.is_known = False
        self.forgotten_at = -math.inf
        self.levels: dict[int, _Level] = {}
        # The floor of the levels without one of their own, down to the priority below which nothing is known.
        self.rest = 0.0
        self.unknown_below = -math.inf

    def forget(self, now: float) -> None:
        self.is_known = False
        self.forgotten_at = now
        self.levels = {}

    def lower(self, priority: int, floor: float, now: float) -> None:
        if self.is_known and priority < self.unknown_below:
            return
        level = self.levels.get(priority)
        if level is None:
            if len(self.levels) >= MOST_LEVELS:
                self.forget(now)
                return
            level = self.levels[priority] = _Level(self.rest if self.is_known else now)
        level.lower(floor, now)

    def learn(self, sent_at: float, last: ClaimedJob | None) -> None:
        """Learn from a full look: it took all jobs, or every job up to `last`, inclusive."""
        if self.forgotten_at >= sent_at:
            return
        self.is_known = True
        self.rest = sent_at
        # Keep levels announced during the look: it may not have seen their jobs.
        self.levels = {
            priority: level for priority, level in self.levels.items() if level.lowered_at >= sent_at
        }
        for level in self.levels.values():
            level.floor = min(sent_at, level.low)
        self.unknown_below = -math.inf
        if last is not None:
            self.unknown_below = last.priority
            self.levels = {key: level for key, level in self.levels.items() if key >= last.priority}
            level = self.levels.setdefault(last.priority, _Level(math.inf))
            level.floor = min(level.floor, _submitted(last, sent_at))

    def lift(self, priority: int, sent_at: float, last: ClaimedJob | None) -> None:
        """From a claim with bounds, one of them for this level."""
        level = self.levels.get(priority)
        if level is None or (last is not None and priority < last.priority):
            return
        is_emptied = last is None or priority > last.priority
        level.lift(sent_at if is_emptied or last is None else _submitted(last, sent_at), sent_at)


class Floors:
    def __init__(self, clock: Callable[[], float] = lease_clock) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = {}
        self._slowest = 0.0
        self._slowest_at = -math.inf

    def levels(self, topics: Collection[str]) -> list[Level] | None:
        """The levels that a claim of the topics has to look at, by priority. None: all levels."""
        now = self._clock()
        is_slow = now - self._slowest_at < SLOWNESS_REMEMBERED_SECONDS
        margin = max(MARGIN_SECONDS, 2 * self._slowest) if is_slow else MARGIN_SECONDS
        found: list[Level] = []
        for name in topics:
            topic = self._topics.get(name)
            if topic is None or not topic.is_known:
                return None
            found += [
                Level(name, priority, now - level.floor + margin) for priority, level in topic.levels.items()
            ]
            if len(found) > MOST_LEVELS:
                return None
        found.sort(key=_by_priority)
        return found

    def all_levels(self, topics: Collection[str]) -> list[Level] | None:
        """The levels where jobs of the topics may wait. None: not known for every topic."""
        known = (self._topics.get(name) for name in topics)
        if any(topic is None or topic.unknown_below > -math.inf for topic in known):
            return None
        return self.levels(topics)

    def claim_begins(self, topics: Collection[str]) -> float:
        """A full look at these topics is about to be sent. Returns the moment."""
        if len(topics) <= MOST_TOPICS_OF_CLAIM:
            for name in topics:
                self._topics[name] = self._topics.pop(name) if name in self._topics else _Topic()
            while len(self._topics) > TOPICS_REMEMBERED:
                del self._topics[next(iter(self._topics))]
        return self._clock()

    def claimed(
        self,
        topics: Collection[str],
        jobs: Sequence[ClaimedJob],
        sent_at: float,
        levels: Sequence[Level] | None,
        *,
        is_filled: bool,
    ) -> bool:
        """A claim that looked at these levels has returned. Returns whether a full look has to follow."""
        is_cut_short = bool(jobs) and jobs[-1].age_seconds is None
        now = self._clock()
        took = now - sent_at if levels is not None else 0.0  # a full look may be slow by its work
        if took > 0 and (took >= self._slowest or now - self._slowest_at > SLOWNESS_REMEMBERED_SECONDS):
            self._slowest, self._slowest_at = took, now
        is_late = took > MARGIN_SECONDS
        if is_late or is_cut_short:
            self.forget(topics)
            return not is_filled
        last = jobs[-1] if is_filled else None
        known = {name: topic for name in topics if (topic := self._topics.get(name)) is not None}
        if levels is None:
            for topic in known.values():
                topic.learn(sent_at, last)
            return False
        for name, priority, _ in levels:
            if name in known:
                known[name].lift(priority, sent_at, last)
        partial = [] if is_filled else [topic for topic in known.values() if topic.unknown_below > -math.inf]
        for topic in partial:
            topic.forget(sent_at)
        return bool(partial)

    def lower(self, topics: Collection[str] | None, levels: Iterable[Level] = ()) -> None:
        """There are new jobs to claim in these topics, at the levels that are given; None: anywhere."""
        now = self._clock()
        named = set()
        for name, priority, age_seconds in levels:
            named.add(name)
            if (topic := self._topics.get(name)) is not None:
                topic.lower(priority, now - age_seconds, now)
        self.forget(None if topics is None else [name for name in topics if name not in named])

    def forget(self, topics: Collection[str] | None) -> None:
        """Look everywhere in these topics the next time; None: in all."""
        now = self._clock()
        for name in self._topics if topics is None else topics:
            if (topic := self._topics.get(name)) is not None:
                topic.forget(now)


def _submitted(job: ClaimedJob, sent_at: float) -> float:
    """When the last job of a claim was submitted, or earlier. Not after the claim: clocks are set back."""
    return sent_at - max(0.0, job.age_seconds or 0.0)


def _by_priority(level: Level) -> int:
    return -level.priority
