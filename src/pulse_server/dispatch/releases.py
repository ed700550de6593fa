"""Gives back jobs that were leased and never delivered, in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

from pulse_server import tuning
from pulse_server.domain.errors import PulseError
from pulse_server.domain.jobs import Claim
from pulse_server.service.claims import Claims

log = logging.getLogger(__name__)


class Releases:
    """Each job goes back in line at once, with its attempt. If that fails, its lease lapses."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._under_way: set[asyncio.Task[None]] = set()

    def give_back(self, claims: Sequence[Claim]) -> None:
        """Have these released, without waiting for it."""
        if not claims:
            return
        task = asyncio.create_task(self._release(claims))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def finish(self, patience: timedelta) -> None:
        """Return once everything that was to be given back is, or after so long."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=patience.total_seconds())

    async def _release(self, claims: Sequence[Claim]) -> None:
        for _ in range(tuning.RELEASE_TRIES):
            try:
                released, locked = await self._claims.release(claims)
            except PulseError as error:
                log.warning("release_failed", extra={"jobs": len(claims), "reason": str(error)})
                return
            log.info("released_undelivered", extra={"jobs": released})
            if not locked:
                return
            claims = locked
            await asyncio.sleep(tuning.RELEASE_PAUSE.total_seconds())
        log.warning("release_failed", extra={"jobs": len(claims), "reason": "Their rows are locked."})
