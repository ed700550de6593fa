"""Logs which session holds the lock that a statement met."""

from __future__ import annotations

import logging
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

from pulse_server.postgres.statements import statements

if TYPE_CHECKING:
    from pulse_server.postgres.database import Fetch

# Between two lines of the log: while a lock lasts, every statement may meet it.
LOGGED_EVERY = timedelta(seconds=10)

# Statements that lock whole tables, with the tables: a session may have held another one for longer.
_TABLES = {
    **dict.fromkeys(("limit_topic", "unlimit_topic"), "jobs"),
    **dict.fromkeys(("add_completed_days", "drop_completed_day"), "completed_jobs%"),
}

_SQL = statements("locks.sql")

log = logging.getLogger(__name__)


class LockHolders:
    def __init__(self) -> None:
        self._logged_at: float | None = None

    async def log(self, statement: str, patience: timedelta, fetch: Fetch) -> None:
        """Log the oldest session that has held a lock for this long. Without one nothing is logged."""
        now = monotonic()
        if self._logged_at is not None and now < self._logged_at + LOGGED_EVERY.total_seconds():
            return
        self._logged_at = now
        tables = _TABLES.get(statement, "%")
        rows = await fetch(_SQL["lock_holders"], patience // timedelta(milliseconds=1), tables)
        for row in rows:
            log.warning("lock_met", extra={"statement": statement, **row})
