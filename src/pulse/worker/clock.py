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
    """Tells how old a message is, from the readings of the server's clock that messages carry.

    The first reading was taken after we asked for it, however late its message came; so no message is
    taken for younger than it is. It may seem older, by what the server took to answer.
    """

    def __init__(self) -> None:
        self._asked_at = lease_clock()
        self._ahead_seconds: float | None = None

    def age_seconds(self, reading: float) -> float:
        """Return how long ago the server's clock showed this, at the most."""
        difference = lease_clock() - reading
        if self._ahead_seconds is None:
            self._ahead_seconds = self._asked_at - reading
        # Smaller than that only if the clocks drift apart: then the smallest is nearest to the truth.
        self._ahead_seconds = min(self._ahead_seconds, difference)
        return difference - self._ahead_seconds
