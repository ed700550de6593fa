"""The clock that leases are measured with."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def lease_clock() -> float:
        """Return seconds that never run backwards and go on while the machine sleeps, as leases do."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    # Stands still while the machine sleeps. The first heartbeat after that tells what was lost.
    lease_clock = time.monotonic


class ServerClock:
    """Computes how old a message is, from the readings of the server's clock that messages carry.

    A reading was taken after it was asked for, however late its message came; so no message is taken for
    younger than it is. It may seem older, by what the server took to answer the fastest of the requests.
    """

    def __init__(self) -> None:
        self._ahead_seconds = float("-inf")
        self._clock_id = ""

    def welcome(self, asked_at: float, reading: float, clock_id: str) -> None:
        """Start over with the clock of a new stream: each may lead to another server."""
        self._ahead_seconds = asked_at - reading
        self._clock_id = clock_id

    def compare(self, asked_at: float, reading: float, clock_id: str) -> None:
        """Take another reading, if it is of the same clock. The fastest answer is nearest to the truth."""
        if clock_id and clock_id == self._clock_id:
            self._ahead_seconds = max(self._ahead_seconds, asked_at - reading)

    def age_seconds(self, reading: float) -> float:
        """Return how long ago the server's clock showed this, at the most."""
        difference = lease_clock() - reading
        # Smaller than that only if the clocks drift apart: then the smallest is nearest to the truth.
        self._ahead_seconds = min(self._ahead_seconds, difference)
        return difference - self._ahead_seconds
