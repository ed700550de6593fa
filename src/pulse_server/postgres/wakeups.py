"""LISTEN and NOTIFY on a separate connection, never inside the transaction of a submit.

NOTIFY takes a lock that every other notifying commit waits for. Inside submits it cut their rate to
a twentieth. Here at most one small message per NOTIFY_SPACING is sent. A message may be lost: the
dispatch tick still finds the work, and a server whose line was down looks up the claims it knows.
ADR-0006
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg

from pulse_server import tuning
from pulse_server.postgres.connector import Connector, Session
from pulse_server.postgres.failures import describe
from pulse_server.postgres.wakeup_messages import Outbox, read
from pulse_server.repos.wakeups import Wakeup

NOTIFY_CHANNEL = "pulse_wakeups"
# At most one NOTIFY per interval: each costs a commit and wakes every server.
NOTIFY_SPACING = timedelta(milliseconds=20)
LISTEN_RETRY = timedelta(seconds=2)
# A line without a message for this long is tested: it may have been cut without notice.
LISTEN_CHECK = timedelta(seconds=15)

log = logging.getLogger(__name__)


def wakeup_line(connector: Connector, lease: timedelta) -> PostgresWakeupLine | NoWakeupLine:
    """The line to the other servers, if the connections allow one."""
    return NoWakeupLine() if connector.behind_pooler else PostgresWakeupLine(connector, lease)


class NoWakeupLine:
    """Behind a transaction pooler LISTEN is impossible: the ticks find the work."""

    def announce(self, wakeup: Wakeup) -> None:
        return

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        return

    async def run(self) -> None:
        """Log that there is no line, and return."""
        log.info("wakeups_off", extra={"reason": "PULSE_DB_POOLER is on; work is found by polling"})


class PostgresWakeupLine:
    def __init__(self, connector: Connector, lease: timedelta = tuning.LEASE_TTL) -> None:
        self._connector = connector
        self._outbox = Outbox(lease)
        self._pending = asyncio.Event()
        self._heard: list[Callable[[Wakeup], None]] = []
        self._pid = 0
        self._is_down = False

    def announce(self, wakeup: Wakeup) -> None:
        self._outbox.add(wakeup)
        if self._outbox:
            self._pending.set()

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        self._heard.append(heard)

    async def run(self) -> None:
        """Keep the line up until canceled."""
        while True:
            try:
                await self._hold_the_line()
            except (
                OSError,
                asyncpg.PostgresError,
                asyncpg.InterfaceError,
                asyncpg.InternalClientError,  # the session was terminated while it was idle
            ) as error:
                if not self._is_down:
                    log.warning("wakeups_down", extra={"reason": describe(error)})
                self._is_down = True
            await asyncio.sleep(LISTEN_RETRY.total_seconds())

    async def _hold_the_line(self) -> None:
        connection = await self._connector.connect(
            settings={"application_name": "pulsed wakeups"}, command_timeout=tuning.STATEMENT_TIMEOUT
        )
        try:
            self._pid = connection.get_server_pid()
            await connection.add_listener(NOTIFY_CHANNEL, self._on_notification)
            # A line that was cut without notice is detected when the next message cannot be sent.
            connection.add_termination_listener(lambda _: self._pending.set())
            if self._is_down:
                log.info("wakeups_recovered")
                self._is_down = False
            # Messages from other servers are lost while the line is down. Messages of this server
            # are still sent.
            self._notify(Wakeup(topics=None, gate_changed=True, policies_changed=True, claims_unknown=True))
            if self._outbox:
                self._pending.set()
            while True:
                try:
                    # Not wait_for: before Python 3.12 it can swallow the cancellation that ends this loop.
                    async with asyncio.timeout(LISTEN_CHECK.total_seconds()):
                        await self._pending.wait()
                except TimeoutError:
                    await self._check(connection)
                    continue
                self._pending.clear()
                await self._send(connection)
                if self._outbox:
                    self._pending.set()
                await asyncio.sleep(NOTIFY_SPACING.total_seconds())
        finally:
            connection.terminate()

    async def _send(self, connection: Session) -> None:
        try:
            await connection.execute(
                "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message",
                NOTIFY_CHANNEL,
                self._outbox.take(),
            )
        except BaseException:
            self._outbox.put_back()
            raise
        self._outbox.sent()

    async def _check(self, connection: Session) -> None:
        """Test the line: a quiet line may be cut, or lead to a host that is no longer the
        primary."""
        if not self._connector.is_current(connection):
            raise ConnectionResetError("the database has moved")
        await connection.execute("SELECT")

    def _on_notification(self, _connection: Any, pid: int, _channel: str, payload: object) -> None:
        if pid == self._pid:
            return
        wakeup = read(str(payload))
        if wakeup is None:
            log.warning("wakeup_not_understood")
        else:
            self._notify(wakeup)

    def _notify(self, wakeup: Wakeup) -> None:
        for heard in self._heard:
            heard(wakeup)
