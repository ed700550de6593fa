"""Whether this server is of use to a caller now, and if not, why."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic

from pulse_server.dispatch.gate import Gate
from pulse_server.domain.errors import PulseError
from pulse_server.domain.readiness import Check
from pulse_server.loops import Loop

log = logging.getLogger(__name__)

Look = Callable[[], Awaitable[None]]


class Readiness:
    """Looks again and again, and keeps the verdict for whoever asks: a probe never waits for the database.

    `ping` and `check_schema` return if all is well, and raise what is wrong as a PulseError.
    """

    def __init__(
        self,
        ping: Look,
        check_schema: Look,
        gate: Gate,
        *,
        interval: timedelta,
        schema_interval: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._ping = ping
        self._check_schema = check_schema
        self._gate = gate
        self._schema_interval = schema_interval.total_seconds()
        self._clock = clock
        self._schema_seen_at = -self._schema_interval
        self._database = Check("database", False, "The database was not asked yet.")
        self._schema = Check("schema", False, "The schema was not looked at yet.")
        self._serving = Check("serving", False, "The server is starting.")
        self._told = False
        self._changed: Callable[[bool], object] = lambda is_ready: None
        self.loop = Loop("readiness", self.tick, interval)

    def on_change(self, changed: Callable[[bool], object]) -> None:
        """Have this called with the verdict, now and whenever it turns."""
        self._changed = changed
        changed(self.is_ready)

    @property
    def checks(self) -> tuple[Check, ...]:
        is_primed = self._gate.is_primed
        gate = Check("gate", is_primed, "" if is_primed else "The pause switch was not read yet.")
        return (self._database, self._schema, gate, self._serving)

    @property
    def is_ready(self) -> bool:
        return all(check.ok for check in self.checks)

    def serve(self) -> None:
        """Calls are accepted from now on."""
        self._serving = Check("serving", True)
        if not self.is_ready:
            self._log()
        self._tell()

    def drain(self) -> None:
        """No new caller should come: the server is going away."""
        self._serving = Check("serving", False, "The server is draining.")
        self._told = False  # which the log has said already
        self._changed(False)

    async def tick(self) -> None:
        database, schema = await _look("database", self._ping), self._schema
        is_due = self._clock() - self._schema_seen_at >= self._schema_interval
        # Whoever comes back may be another database, or one that was restored.
        is_doubtful = not self._database.ok or not schema.ok
        if database.ok and (is_due or is_doubtful):
            schema = await _look("schema", self._check_schema)
            self._schema_seen_at = self._clock()
        # Both at once: a database that is back is of no use before its schema is known.
        self._database, self._schema = database, schema
        self._tell()

    def _tell(self) -> None:
        if self.is_ready == self._told:
            return
        self._told = self.is_ready
        self._log()
        self._changed(self._told)

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
        return Check(name, False, "The server met an error of its own; its log has the details.")
    return Check(name, True)
