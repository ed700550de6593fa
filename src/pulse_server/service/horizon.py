"""Watches what keeps dead rows from being removed, and says who it is once that has lasted too long.

A queue's table suffers first: claimed jobs leave dead entries at the head of the claim index, and as long as
somebody might still see them, each claim has to step over all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from pulse_server.domain.horizon import Holder
from pulse_server.loops import Loop
from pulse_server.repos.vitals import VitalsRepo
from pulse_server.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Hold:
    holder: Holder
    first_seen: float
    seconds: float = 0.0
    """None worth the name at the first look: a transaction may be old, and its snapshot of this moment."""
    told_at_seconds: float | None = None


class Horizon:
    """Warns of a holder that is older than `patience`, again whenever it is twice as old, and of its end.

    What is known of it is kept in memory only: a server that starts looks twice before it warns.
    """

    def __init__(
        self,
        repo: VitalsRepo,
        metrics: Metrics,
        *,
        interval: timedelta,
        patience: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._repo = repo
        self._patience = patience.total_seconds()
        self._clock = clock
        self._hold: _Hold | None = None
        self.loop = Loop("horizon", self.tick, interval)
        metrics.oldest_transaction.read = lambda: {(): self._hold.seconds if self._hold else 0.0}
        metrics.horizon.read = lambda: {(): self._hold.holder.transactions if self._hold else 0.0}

    async def tick(self) -> None:
        holder = await self._repo.oldest_holder()
        hold, now = self._hold, self._clock()
        if hold is not None and holder is not None and holder.identity == hold.holder.identity:
            hold.holder = holder
            # Slots have no age, and neither have sessions that hide it: they are as old as our acquaintance.
            hold.seconds = now - hold.first_seen if holder.seconds is None else holder.seconds
            self._warn_if_due(hold)
            return
        if hold is not None and hold.told_at_seconds is not None:
            log.info("vacuum_free_again", extra=_facts(hold))
        self._hold = None if holder is None else _Hold(holder, first_seen=now)

    def _warn_if_due(self, hold: _Hold) -> None:
        told = hold.told_at_seconds
        if hold.seconds >= (self._patience if told is None else 2 * told):
            hold.told_at_seconds = hold.seconds
            hint = f"Until it ends no dead row is removed, and claims get slower. {hold.holder.remedy}"
            log.warning("vacuum_held_back", extra={**_facts(hold), "hint": hint})


def _facts(hold: _Hold) -> dict[str, object]:
    holder = hold.holder
    return {
        "holder": holder.kind.value,
        "pid": holder.pid,
        "held_by": holder.name,
        "database": holder.database,
        "application": holder.application,
        "user": holder.user,
        "state": holder.state,
        "held_seconds": round(hold.seconds, 1),
        "transactions": holder.transactions,
        "dead_rows": holder.dead_rows,
    }
