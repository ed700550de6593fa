"""The offset between the clock of the history and the clock of the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.faults.history import Event


@dataclass(frozen=True)
class Clock:
    """Converts moments of the history (nanoseconds) to those of the audit (microseconds), within bounds.

    A rule uses the bound under which a violation is certain.
    """

    least_ahead_ns: int
    most_ahead_ns: int

    @classmethod
    def of(cls, events: Iterable[Event]) -> Clock:
        """From the readings in the history. The database's clock was read between `sent` and `received`."""
        readings = [event.facts for event in events if event.what == "clock"]
        if not readings:
            raise ValueError("The history has no reading of the database's clock; see audit.record_clock.")
        least = [reading["database_ns"] - reading["received_ns"] for reading in readings]
        most = [reading["database_ns"] - reading["sent_ns"] for reading in readings]
        if max(least) <= min(most):
            return cls(max(least), min(most))
        # The clock of the machine was set, or runs at another speed: each reading was true at its time.
        return cls(min(least), max(most))

    def earliest(self, t: int) -> int:
        """The database's time was at least this."""
        return (t + self.least_ahead_ns) // 1000

    def latest(self, t: int) -> int:
        """The database's time was this at the most."""
        return -((-(t + self.most_ahead_ns)) // 1000)

    def about(self, at: int) -> int:
        """The approximate moment of the history for a time of the database."""
        return at * 1000 - (self.least_ahead_ns + self.most_ahead_ns) // 2
