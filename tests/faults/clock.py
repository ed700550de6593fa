"""How the clock of the history stands to the clock of the database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.faults.history import Event


@dataclass(frozen=True)
class Clock:
    """Places moments of the history (nanoseconds) among those of the audit (microseconds), within bounds.

    A rule that could accuse somebody takes the bound under which the accusation is certain.
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
        # The clock of the machine was set, or goes at another speed: each reading was true in its time.
        return cls(min(least), max(most))

    def earliest(self, t: int) -> int:
        """The database's time was at least this."""
        return (t + self.least_ahead_ns) // 1000

    def latest(self, t: int) -> int:
        """The database's time was this at the most."""
        return -((-(t + self.most_ahead_ns)) // 1000)

    def about(self, at: int) -> int:
        """The moment of the history at which the database's clock stood there, more or less."""
        return at * 1000 - (self.least_ahead_ns + self.most_ahead_ns) // 2
