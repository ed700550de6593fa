"""Readiness: whether this server can serve requests, and why not."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic

from pulse_server.base.errors import PulseError
from pulse_server.base.loops import Loop
from pulse_server.domain.readiness import Check

log = logging.getLogger(__name__)

Look = Callable[[], Awaitable[None]]


class Readiness:
    """Checks at intervals and keeps the result: a probe never waits for the database.

    `ping` and `check_schema` return if all is well, and raise a PulseError otherwise. `changed` is
    called with the state, now and whenever it changes. `is_primed`: whether the gate has read the switches.
    """

    def __init__(
        self,
        ping: Look,
        check_schema: Look,
        is_primed: Callable[[], bool],
        *,
        changed: Callable[[bool], object],
        interval: timedelta,
        schema_interval: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._ping = ping
        self._check_schema = check_schema
        self._is_primed = is_primed
        self._schema_interval = schema_interval.total_seconds()
        self._clock = clock
        self._schema_seen_at = -self._schema_interval
        self._database = Check("database", False, "The database was not asked yet.")
        self._schema = Check("schema", False, "The schema was not looked at yet.")
        self._serving = Check("serving", False, "The server is starting.")
        self._published = False
        self._changed = changed
        self.loop = Loop("readiness", self.tick, interval)
        changed(False)

    @property
    def checks(self) -> tuple[Check, ...]:
        is_primed = self._is_primed()
        gate = Check("gate", is_primed, "" if is_primed else "The pause switch was not read yet.")
        return (self._database, self._schema, gate, self._serving)

    @property
    def is_ready(self) -> bool:
        return all(check.ok for check in self.checks)

    def serve(self) -> None:
        """Record that calls are accepted from now on."""
        self._serving = Check("serving", True)
        if not self.is_ready:
            self._log()
        self._publish()

    def drain(self) -> None:
        """Record that the server is going away and must get no new callers."""
        self._serving = Check("serving", False, "The server is draining.")
        self._published = False  # the log has it already
        self._changed(False)

    async def tick(self) -> None:
        database, schema = await _look("database", self._ping), self._schema
        is_due = self._clock() - self._schema_seen_at >= self._schema_interval
        # After an outage another database may answer, or a restored one.
        is_doubtful = not self._database.ok or not schema.ok
        if database.ok and (is_due or is_doubtful):
            schema = await _look("schema", self._check_schema)
            self._schema_seen_at = self._clock()
        # Both at once: a database that is back is of no use before its schema is known.
        self._database, self._schema = database, schema
        self._publish()

    def _publish(self) -> None:
        if self.is_ready == self._published:
            return
        self._published = self.is_ready
        self._log()
        self._changed(self._published)

    def _log(self) -> None:
        reasons = [check.why for check in self.checks if not check.ok]
        log.info("readiness", extra={"ready": not reasons, "reasons": reasons})


async def _look(name: str, look: Look) -> Check:
    try:
        await look()
    except PulseError as error:
        return Check(name, False, str(error))
    except Exception:
        log.exception("check_failed", extra={"check": name})
        return Check(name, False, "Internal error. The log of the server has the details.")
    return Check(name, True)
