"""Watches for old snapshots that keep dead rows, and logs a warning once one has lasted too long.

A queue's table suffers first: claimed jobs leave dead entries at the head of the claim index. As
long as an old snapshot may see the entries, each claim has to step over all of them.
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
    """0 at the first look: an old transaction may have a new snapshot."""
    warned_at_seconds: float | None = None


class Horizon:
    """Warns of a holder that is older than `patience`, again whenever it is twice as old, and of its end.

    The state is in memory only: a server that starts looks twice before it warns.
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
            # Slots have no age, nor have sessions that hide it: their age counts from the first look.
            hold.seconds = now - hold.first_seen if holder.seconds is None else holder.seconds
            self._warn_if_due(hold)
            return
        if hold is not None and hold.warned_at_seconds is not None:
            log.info("vacuum_free_again", extra=_facts(hold))
        self._hold = None if holder is None else _Hold(holder, first_seen=now)

    def _warn_if_due(self, hold: _Hold) -> None:
        warned_at = hold.warned_at_seconds
        if hold.seconds >= (self._patience if warned_at is None else 2 * warned_at):
            hold.warned_at_seconds = hold.seconds
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
