"""The offset between the clock of the history and the clock of the database."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from faults.history import Event

# The database's clock is set: a fault with the seconds by which it is ahead afterwards, or behind.
CLOCK = "clock"
# Longer than any step.
_NEAR_NS = 2 * 10**9


class Step(NamedTuple):
    """The clock was set between two moments of the history. It is ahead by this much in all since then."""

    begin: int
    end: int
    ahead_ns: int


@dataclass(frozen=True)
class Clock:
    """Converts moments of the history (nanoseconds) to those of the audit (microseconds), within bounds.

    A rule uses the bound under which a violation is certain.
    """

    least_ahead_ns: int
    most_ahead_ns: int
    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, events: Iterable[Event]) -> Clock:
        """From the readings in the history. The database's clock was read between `sent` and `received`."""
        events = list(events)
        steps = _steps(events)
        readings = [event.facts for event in events if event.what == "clock"]
        if not readings:
            raise ValueError("The history has no reading of the database's clock; see audit.record_clock.")
        unset = [reading["database_ns"] - _ahead(steps, reading["received_ns"]) for reading in readings]
        least = [moment - reading["received_ns"] for moment, reading in zip(unset, readings, strict=True)]
        most = [moment - reading["sent_ns"] for moment, reading in zip(unset, readings, strict=True)]
        if max(least) <= min(most):
            return cls(max(least), min(most), steps)
        # The clock of the machine was set, or runs at another speed: each reading was true at its time.
        return cls(min(least), max(most), steps)

    def earliest(self, t: int) -> int:
        """The database's time was at least this."""
        return (t + self.least_ahead_ns + min(_around(self.steps, t))) // 1000

    def latest(self, t: int) -> int:
        """The database's time was this at the most."""
        return -((-(t + self.most_ahead_ns + max(_around(self.steps, t)))) // 1000)

    def about(self, at: int) -> int:
        """The approximate moment of the history for a time of the database: the last one, if it had two."""
        unset = at * 1000 - (self.least_ahead_ns + self.most_ahead_ns) // 2
        for step in reversed(self.steps):
            if unset - step.ahead_ns >= step.begin:
                return unset - step.ahead_ns
        return unset

    def was_set(self, at: int, within: int) -> bool:
        """Whether the clock was set that close to a time of the database."""
        moment = self.about(at)
        return any(step.begin - within * 1000 <= moment <= step.end + within * 1000 for step in self.steps)


def _steps(events: Iterable[Event]) -> tuple[Step, ...]:
    steps: list[Step] = []
    begin, ahead = 0, 0
    for event in events:
        if event.facts.get("kind") == CLOCK and event.what == "fault":
            begin, ahead = event.t, ahead + round(event.facts["seconds"] * 1e9)
        elif event.facts.get("kind") == CLOCK and event.what == "healed":
            steps.append(Step(begin, event.t, ahead))
    return tuple(steps)


def _ahead(steps: tuple[Step, ...], t: int) -> int:
    """By how much the clock was set by then."""
    place = bisect_right(steps, t, key=lambda step: step.end)
    return steps[place - 1].ahead_ns if place else 0


def _around(steps: tuple[Step, ...], t: int) -> list[int]:
    """By how much the clock was set shortly before and after.

    The database has some times twice after it was set back: which one is meant, no rule can know.
    """
    near = [step for step in steps if step.begin - _NEAR_NS <= t <= step.end + _NEAR_NS]
    return [
        _ahead(steps, t),
        *(ahead for step in near for ahead in (step.ahead_ns, _ahead(steps, step.begin))),
    ]
