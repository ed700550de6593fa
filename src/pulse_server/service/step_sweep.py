"""Forgets steps and signals whose job is gone. ADR-0069

The statements that complete or delete a job delete its steps and signals too. Leftovers come from
servers of the release before, which do not know steps.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

from pulse_server.base.loops import Loop
from pulse_server.domain.steps import Swept
from pulse_server.postgres.steps import PostgresStepRepo

# Between two passes, and between two statements of one.
SWEEP_INTERVAL = timedelta(minutes=30)
SWEEP_PAUSE = timedelta(milliseconds=200)
# Rows looked at per statement: about 5 ms if all of them stay.
SWEEP_BATCH = 1000

_FIRST = str(UUID(int=0))

log = logging.getLogger(__name__)


class StepSweep:
    """Walks over the steps, then over the signals, one statement per tick, and rests in between."""

    def __init__(self, repo: PostgresStepRepo) -> None:
        self._walks: tuple[Callable[[str, int], Awaitable[Swept]], ...] = (
            repo.forget_steps,
            repo.forget_signals,
        )
        self._walk = 0
        self._reached = _FIRST
        self._forgotten = 0
        self.loop = Loop("steps", self.tick, SWEEP_INTERVAL)

    async def tick(self) -> timedelta:
        """Look at one batch. Returns how long to rest: shortly within a pass, an interval after it."""
        swept = await self._walks[self._walk](self._reached, SWEEP_BATCH)
        self._forgotten += swept.forgotten
        if swept.looked_at == SWEEP_BATCH and swept.reached is not None:
            self._reached = swept.reached
            return SWEEP_PAUSE
        self._reached = _FIRST
        self._walk = (self._walk + 1) % len(self._walks)
        if self._walk:
            return SWEEP_PAUSE
        if self._forgotten:
            log.info("steps_forgotten", extra={"rows": self._forgotten})
            self._forgotten = 0
        return SWEEP_INTERVAL
