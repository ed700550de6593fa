"""Holders of old snapshots, which keep the database from removing dead rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
