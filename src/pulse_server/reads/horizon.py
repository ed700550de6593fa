"""Watches for old snapshots that keep dead rows, and logs a warning once one has lasted too long.

A queue's table suffers first: claimed jobs leave dead entries at the head of the claim index. As
long as an old snapshot may see the entries, each claim has to step over all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from time import monotonic

from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Metrics

log = logging.getLogger(__name__)


class HolderKind(StrEnum):
    SESSION = "session"
    PREPARED = "prepared transaction"
    STANDBY = "standby"
    SLOT = "replication slot"


@dataclass(frozen=True, slots=True)
class Holder:
    """The oldest holder of dead rows, as the database reports it.

    A role without the right to see sessions of other roles gets them without `state` and `seconds`.
    """

    kind: HolderKind
    xid: int
    """The transaction from which on no dead row can be removed."""
    transactions: int
    """How many transaction ids were assigned since."""
    dead_rows: int
    pid: int | None
    name: str
    """The name of a slot, or of a prepared transaction."""
    database: str
    """Its database. A transaction that has written holds back every database of the server."""
    application: str
    user: str
    state: str | None
    seconds: float | None
    """How long its transaction has been open, if visible."""

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal in two samples: it is the same holder, with the same snapshot."""
        return self.kind, self.pid, self.name, self.xid

    @property
    def remedy(self) -> str:
        """How an operator can end the hold."""
        match self.kind:
            case HolderKind.SESSION:
                remedy = f"SELECT pg_terminate_backend({self.pid}) ends it."
                if self.state is None:
                    return f"It is a session of another user, so its state is hidden from pulsed. {remedy}"
                return remedy
            case HolderKind.PREPARED:
                name = self.name.replace("'", "''")
                return f"COMMIT PREPARED '{name}' or ROLLBACK PREPARED '{name}' ends it."
            case HolderKind.STANDBY:
                return "A query on that standby holds it (hot_standby_feedback): end the query there."
            case HolderKind.SLOT if self.pid is None:
                return (
                    "The slot is not in use. If its standby is gone for good: "
                    f"SELECT pg_drop_replication_slot('{self.name}')."
                )
            case HolderKind.SLOT:
                return "A query on its standby holds it (hot_standby_feedback): end the query there."


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
        oldest_holder: Callable[[], Awaitable[Holder | None]],
        metrics: Metrics,
        *,
        interval: timedelta,
        patience: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._oldest_holder = oldest_holder
        self._patience = patience.total_seconds()
        self._clock = clock
        self._hold: _Hold | None = None
        self.loop = Loop("horizon", self.tick, interval)
        metrics.oldest_transaction.read = lambda: {(): self._hold.seconds if self._hold else 0.0}
        metrics.horizon.read = lambda: {(): self._hold.holder.transactions if self._hold else 0.0}

    async def tick(self) -> None:
        holder = await self._oldest_holder()
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
