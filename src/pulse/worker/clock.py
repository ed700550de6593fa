"""The clock of leases."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def lease_clock() -> float:
        """Return monotonic seconds that include the time the machine sleeps, as leases do."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    # Stands still while the machine sleeps. The first heartbeat after that reports the lost jobs.
    lease_clock = time.monotonic


class ServerClock:
    """Computes the age of messages, from the readings of the server's clock that they carry.

    A reading is taken after its request was sent, so the computed age is never too low. It is too high by at
    most the time of the fastest answer.
    """

    def __init__(self) -> None:
        self._ahead_seconds = float("-inf")
        self._clock_id = ""

    def welcome(self, asked_at: float, reading: float, clock_id: str) -> None:
        """Reset to the clock of a new stream: each may go to another server."""
        self._ahead_seconds = asked_at - reading
        self._clock_id = clock_id

    def compare(self, asked_at: float, reading: float, clock_id: str) -> None:
        """Add a reading of the same clock. The fastest answer is the most accurate."""
        if clock_id and clock_id == self._clock_id:
            self._ahead_seconds = max(self._ahead_seconds, asked_at - reading)

    def age_seconds(self, reading: float) -> float:
        """Return an upper bound of the age of the reading."""
        difference = lease_clock() - reading
        # Smaller only if the clocks drift apart. Then the smallest difference is the most accurate.
        self._ahead_seconds = min(self._ahead_seconds, difference)
        return difference - self._ahead_seconds
