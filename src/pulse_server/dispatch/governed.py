"""The governed topics, and when the next job of each may start. ADR-0064

A topic with a flow policy is governed. Its jobs are claimed by a statement of their own, which keeps to its
limits and rates. The end of a run makes room for another one, in all topics that have the same turnstile.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping

# A claim that found nothing though there may be more is repeated after this, doubled with each in a row: it
# may have met rows that another session has locked.
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.5
# No timer is shorter: a rate has room again at a moment of the database's clock, which a timer may just miss.
SHORTEST_WAIT_SECONDS = 0.001


class GovernedTopics:
    """The topics with a flow policy and their turnstiles, as this server last read them."""

    def __init__(self, turnstiles: Mapping[str, str]) -> None:
        self._turnstiles = turnstiles
        self._sharing: dict[str, set[str]] = {}
        for topic, turnstile in turnstiles.items():
            self._sharing.setdefault(turnstile, set()).add(topic)

    def __bool__(self) -> bool:
        return bool(self._turnstiles)

    def __contains__(self, topic: object) -> bool:
        return topic in self._turnstiles

    def among(self, topics: Collection[str]) -> frozenset[str]:
        """Those of the topics that are governed."""
        if not self._turnstiles:
            return frozenset()
        return frozenset(topic for topic in topics if topic in self._turnstiles)

    def sharing_with(self, topics: Iterable[str]) -> set[str]:
        """The topics whose jobs may start when runs of these have ended: none for topics without a policy."""
        return {
            other
            for topic in topics
            if (turnstile := self._turnstiles.get(topic)) is not None
            for other in self._sharing[turnstile]
        }


NO_GOVERNED_TOPICS = GovernedTopics({})


class NextStarts:
    """Timers for governed topics whose next job may start later. One for each topic, the earliest.

    `wake` is called with topics that may have a job to start now.
    """

    def __init__(self, wake: Callable[[Collection[str]], object]) -> None:
        self._wake = wake
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._pauses: dict[str, float] = {}

    def claimed(self, started: Collection[str], next_starts: Mapping[str, float]) -> None:
        """A claim has started jobs of some topics, and knows in how many seconds others may start.

        Zero is at once; infinity is no time, but once a run has ended.
        """
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
