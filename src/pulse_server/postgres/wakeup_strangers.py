"""Messages on the channel that no server of this queue has sent: their number is bounded, and logged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from pulse_server.clock import lease_clock

STRANGE_MINUTE = timedelta(minutes=1)
# Opened and refused in a minute: 10 µs each. Past this the line is closed until the minute is over.
STRANGE_MESSAGES = 1000
_PIDS_LOGGED = 10

log = logging.getLogger(__name__)


class Strangers:
    """Counts the messages of others by the minute. The first minute begins with the first message."""

    def __init__(self, clock: Callable[[], float] = lease_clock) -> None:
        self._clock = clock
        self._minute_ends = clock()
        self._count = 0
        self._pids: dict[int, None] = {}

    @property
    def are_too_many(self) -> bool:
        return self._count > STRANGE_MESSAGES

    @property
    def seconds_left(self) -> float:
        """The rest of the minute."""
        return max(0.0, self._minute_ends - self._clock())

    def met(self, pid: int) -> None:
        """A session with this process id sent a message."""
        self._count += 1
        if len(self._pids) < _PIDS_LOGGED:
            self._pids[pid] = None
        self.look()

    def look(self) -> None:
        """Log how many messages came, once a minute, if there were any."""
        if not self._count or self._clock() < self._minute_ends:
            return
        log.warning("foreign_wakeups", extra={"count": self._count, "pids": list(self._pids)})
        self._minute_ends = self._clock() + STRANGE_MINUTE.total_seconds()
        self._count = 0
        self._pids.clear()
