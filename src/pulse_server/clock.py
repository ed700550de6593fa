"""The clock that leases are measured with on this host."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def lease_clock() -> float:
        """Seconds that never run backwards and continue while the machine sleeps, as leases do."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    # Stops while the machine sleeps, which a server's machine does not do.
    lease_clock = time.monotonic
