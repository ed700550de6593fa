"""Watches whether the database has disk space, and logs when it has none.

Without space, submits and reports are refused one by one. A probe writes a temporary file, so that the
end is noticed too, and a server without callers knows of it. The server stays ready: reads, heartbeats and
running jobs continue, and callers get a sentence instead of no server.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from pulse_server.base.errors import ResourceExhausted
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Metrics

# Logged again after this while it lasts.
REMINDER = timedelta(minutes=10)

log = logging.getLogger(__name__)


class Space:
    def __init__(
        self,
        probe: Callable[[], Awaitable[None]],
        metrics: Metrics,
        clock: Callable[[], datetime],
        *,
        interval: timedelta,
    ) -> None:
        """`probe` returns if a file can be written, and raises ResourceExhausted if not."""
        self._probe = probe
        self._clock = clock
        self._refusals = metrics.statements_without_space
        self._refused = 0.0
        self._logged_at: datetime | None = None
        self.full_since: datetime | None = None
        """None: there is space, as far as this server knows."""
        self.loop = Loop("space", self.tick, interval)
        metrics.database_full.read = lambda: {(): float(self.full_since is not None)}

    async def tick(self) -> None:
        """Look for space. Tables may be on another disk than temporary files, so refusals count too."""
        before = self._refused
        try:
            await self._probe()
            has_space = True
        except ResourceExhausted:
            has_space = False
        self._refused = self._refusals.values.get((), 0)
        if has_space and self._refused == before:
            self._note_space()
        else:
            self._note_full(int(self._refused))

    def _note_full(self, refused: int) -> None:
        now = self._clock()
        self.full_since = self.full_since or now
        if self._logged_at is None or now - self._logged_at >= REMINDER:
            self._logged_at = now
            hint = "Nothing can be stored. Free space on the disk of the database; everything then resumes."
            log.warning(
                "database_full",
                extra={"since": self.full_since.isoformat(), "refused": refused, "hint": hint},
            )

    def _note_space(self) -> None:
        if self.full_since is not None:
            log.info("database_has_space", extra={"since": self.full_since.isoformat()})
        self.full_since = self._logged_at = None
