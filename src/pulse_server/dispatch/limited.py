"""Limited topics: which topics have limits, which to claim next, and when. ADR-0064

Jobs of a topic with a limit, a rate or lanes are taken by a separate claim. A claim locks the pools
of its topics. The end of a run lets a job of any topic in the pool start. The rest of
dispatch asks LimitedTopics and knows no pool.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from weakref import WeakSet

from pulse_server.jobs.rules import ClaimedJob

# A claim that found nothing though there may be more is repeated after this, doubled with each in a row: it
# may have met rows that another session has locked.
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.5
# No timer is shorter: a rate has room again at a moment of the database's clock, which a timer may just miss.
SHORTEST_WAIT_SECONDS = 0.001
# After a claim that reached its limit, the next has twice the slots that it filled, but at least
# half of the slots before, and at least this many: the jobs that end between two claims vary.
FEWEST_SLOTS = 100
TOPIC_SETS_REMEMBERED = 10_000


class LimitedTopics:
    """The topics that have limits, as this server last read them.

    `wake` is called with limited topics that may have a job to start now.
    """

    def __init__(self, wake: Callable[[Collection[str]], object]) -> None:
        self._wake = wake
        self.pools: Mapping[str, str] = {}
        """The pool of each topic that has limits. A plain topic is in no pool, and asks nothing more here."""
        self._sharing: dict[str, set[str]] = {}
        self._ahead: frozenset[str] = frozenset()
        self._runs_ahead: dict[frozenset[str], bool] = {}
        # How many slots the next claim of a topic names, if its limit had no room for more at the last one.
        self._most_slots: dict[str, int] = {}
        self._claiming: set[str] = set()
        # Topics that the last claim left empty. In other topics, jobs wait for a limit or a rate: a
        # hand-over would only lock the pool.
        self._emptied: set[str] = set()
        # Topic sets of groups whose last claim took limited topics though plain ones had work too.
        self._had_turn: WeakSet[frozenset[str]] = WeakSet()
        self._next_starts = NextStarts(wake)

    def replace(self, pools: Mapping[str, str], ahead: frozenset[str]) -> None:
        """Take over the topics that have limits now, each with its pool.

        `ahead`: the topics whose jobs may wait in a worker until it can run them.
        """
        self.pools = pools
        self._ahead = ahead
        self._runs_ahead = {}
        self._most_slots = {}
        self._sharing = {}
        for topic, pool in pools.items():
            self._sharing.setdefault(pool, set()).add(topic)

    def among(self, topics: Collection[str]) -> frozenset[str]:
        """Return the topics that have limits."""
        if not self.pools:
            return frozenset()
        return frozenset(topic for topic in topics if topic in self.pools)

    def sharing_with(self, topics: Iterable[str]) -> set[str]:
        """Return the topics whose jobs may start when runs of `topics` end. Plain topics share with none."""
        return {
            other
            for topic in topics
            if (pool := self.pools.get(topic)) is not None
            for other in self._sharing[pool]
        }

    # --- claims

    def runs_ahead(self, topics: frozenset[str]) -> bool:
        """Whether limited jobs may wait in a worker with the given topics.

        No job may if a topic has a rate or an order: its jobs would find no slot that runs at once.
        """
        if topics not in self._runs_ahead:
            if len(self._runs_ahead) >= TOPIC_SETS_REMEMBERED:
                self._runs_ahead.clear()
            self._runs_ahead[topics] = self._ahead.issuperset(self.among(topics))
        return self._runs_ahead[topics]

    def permits(self, topic: str, topics: frozenset[str], *, may_run: bool) -> bool:
        """Whether the limited topic may be claimed now, for a group with the given topics.

        `may_run`: the job would start at once.
        """
        return topic not in self._claiming and (may_run or self.runs_ahead(topics))

    def most_slots(self, topics: Collection[str], most: int) -> int:
        """How many slots a claim of the topics should name: no more than the limit has room for."""
        return max((self._most_slots.get(topic, most) for topic in topics), default=most)

    def next_turn(self, topics: frozenset[str], work: Collection[str]) -> Sequence[str]:
        """Limited topics to claim next for a group; empty when it is the plain topics' turn.

        `topics` are all topics of the group. `work` lists its topics that may have work.
        """
        work = [topic for topic in work if topic not in self._claiming]
        limited = [topic for topic in work if topic in self.pools]
        if limited and len(limited) < len(work):
            if topics in self._had_turn:
                self._had_turn.discard(topics)
                return ()
            self._had_turn.add(topics)
        return limited

    @contextmanager
    def claiming(self, topics: Iterable[str]) -> Iterator[None]:
        """Prevent other claims of the topics: they would wait for the same pools."""
        busy = self.sharing_with(topics)
        self._claiming |= busy
        try:
            yield
        finally:
            self._claiming -= busy

    def claimed(
        self,
        topics: Collection[str],
        jobs: Sequence[ClaimedJob],
        next_starts: Mapping[str, float],
        *,
        is_filled: bool,
    ) -> None:
        """A claim took the jobs from the topics, and returned when further jobs may start.

        `next_starts` is in seconds. Zero: at once. Infinity: once a run has ended. A topic without
        an entry has nothing more to start, unless the claim filled all of its slots.
        """
        for topic in topics:
            if is_filled or topic in next_starts:
                self._emptied.discard(topic)
            else:
                self._emptied.add(topic)
            if next_starts.get(topic) == math.inf:
                before = self._most_slots.get(topic, 0)
                self._most_slots[topic] = max(FEWEST_SLOTS, 2 * len(jobs), before // 2)
            else:
                self._most_slots.pop(topic, None)
        if is_filled and (more := [topic for topic in topics if next_starts.get(topic) != math.inf]):
            self._wake(more)
        self._next_starts.claimed({job.topic for job in jobs}, next_starts)

    def claim_failed(self, topics: Collection[str]) -> None:
        """A claim of the topics failed: more jobs may wait in them, so hand over nothing."""
        self._emptied.difference_update(topics)

    def may_hand_over(self, topic: str) -> bool:
        """Whether a new job of the limited topic is expected to start at its submit."""
        return topic in self._emptied and topic not in self._claiming

    def forget_starts(self) -> None:
        """Wake for no later start any more."""
        self._next_starts.forget()


class NextStarts:
    """Timers for limited topics whose next job may start later. One for each topic, the earliest."""

    def __init__(self, wake: Callable[[Collection[str]], object]) -> None:
        self._wake = wake
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pauses: dict[str, float] = {}

    def claimed(self, started: Collection[str], next_starts: Mapping[str, float]) -> None:
        """A claim has started jobs of some topics, and knows in how many seconds others may start."""
        at_once = [topic for topic, seconds in next_starts.items() if seconds <= 0 and topic in started]
        for topic in started:
            self._pauses.pop(topic, None)
        for topic, seconds in next_starts.items():
            if seconds <= 0 and topic not in started:
                pause = self._pauses.get(topic, FIRST_PAUSE_SECONDS)
                self._pauses[topic] = min(2 * pause, LONGEST_PAUSE_SECONDS)
                self._wake_after(pause, topic)
            elif 0 < seconds < math.inf:
                self._wake_after(max(seconds, SHORTEST_WAIT_SECONDS), topic)
        if at_once:
            self._wake(at_once)

    def forget(self) -> None:
        """Cancel all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._pauses.clear()

    def _wake_after(self, seconds: float, topic: str) -> None:
        loop = asyncio.get_running_loop()
        timer = self._timers.get(topic)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[topic] = loop.call_later(seconds, self._ring, topic)

    def _ring(self, topic: str) -> None:
        del self._timers[topic]
        self._wake([topic])
