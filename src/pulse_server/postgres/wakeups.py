"""LISTEN and NOTIFY on a separate connection, never inside the transaction of a submit.

NOTIFY takes a lock that every other notifying commit waits for. Inside submits it cut their rate to
a twentieth. Here at most one small message per NOTIFY_SPACING is sent. A message may be lost: the
dispatch tick still finds the work, and a server whose line was down looks up the claims it knows.
ADR-0006

Any role that may connect can LISTEN and NOTIFY. The name of the channel is a secret, and so is the key
that seals the messages. ADR-0084
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg

from pulse_server.base import tuning
from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.base.ids import Seal
from pulse_server.base.loops import lease_clock
from pulse_server.database.connector import Connector, DatabaseSession, describe
from pulse_server.database.statements import statements
from pulse_server.postgres.wakeup_messages import Outbox, read
from pulse_server.wakeups import Wakeup

# ---------------------------------------------------------------- wakeup strangers
# Messages on the channel that no server of this queue has sent: their number is bounded, and logged.

STRANGE_MINUTE = timedelta(minutes=1)
# Opened and refused in a minute: 10 µs each. Past this the line is closed until the minute is over.
STRANGE_MESSAGES = 1000
_PIDS_LOGGED = 10


class Strangers:
    """Counts the messages of others by the minute. The first minute begins with the first message."""

    def __init__(self, clock: Callable[[], float] = lease_clock) -> None:
        self._clock = clock
        self._minute_ends = clock()
        self._count = 0
        self._pids: dict[int, None] = {}

    @property
    def are_too_many(self) -> bool:
        return self._count > STRANGE_MESSAGES

    @property
    def seconds_left(self) -> float:
        """The rest of the minute."""
        return max(0.0, self._minute_ends - self._clock())

    def met(self, pid: int) -> None:
        """A session with this process id sent a message."""
        self._count += 1
        if len(self._pids) < _PIDS_LOGGED:
            self._pids[pid] = None
        self.look()

    def look(self) -> None:
        """Log how many messages came, once a minute, if there were any."""
        if not self._count or self._clock() < self._minute_ends:
            return
        log.warning("foreign_wakeups", extra={"count": self._count, "pids": list(self._pids)})
        self._minute_ends = self._clock() + STRANGE_MINUTE.total_seconds()
        self._count = 0
        self._pids.clear()


# ---------------------------------------------------------------- wakeups

# At most one NOTIFY per interval: each costs a commit and wakes every server.
NOTIFY_SPACING = timedelta(milliseconds=20)
LISTEN_RETRY = timedelta(seconds=2)
# The line is tested this often: it may have been cut without notice, or the secret may have been replaced.
LISTEN_CHECK = timedelta(seconds=15)

log = logging.getLogger(__name__)

_SQL = statements("secret.sql")
_NO_SECRET = (
    "The row of pulse.cluster_secret is missing, and servers cannot notify each other without it. "
    "Put it back: INSERT INTO pulse.cluster_secret DEFAULT VALUES;"
)
_QUEUE_IS_FULL = (
    "The NOTIFY queue of the database server is full: a session that has called LISTEN, in any database, "
    "has been in a transaction for long. The log of Postgres names it. Until it has ended, work is found by "
    "polling."
)


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
        self._strangers = Strangers()

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
                PulseError,
            ) as error:
                if not self._is_down:
                    log.warning("wakeups_down", extra={"reason": describe(error)})
                self._is_down = True
            rest = self._strangers.seconds_left if self._strangers.are_too_many else 0.0
            await asyncio.sleep(max(LISTEN_RETRY.total_seconds(), rest))
            self._strangers.look()

    async def _hold_the_line(self) -> None:
        connection = await self._connector.connect(
            settings={"application_name": "pulsed wakeups"}, command_timeout=tuning.STATEMENT_TIMEOUT
        )
        try:
            secret = await _read_secret(connection)
            seal = Seal(secret)
            # Not get_server_pid: a pooler in session mode makes one up, and no message would open.
            self._pid = await connection.fetchval("SELECT pg_backend_pid()")

            def on_notification(_connection: Any, pid: int, _channel: str, payload: object) -> None:
                if pid != self._pid and not self._strangers.are_too_many:
                    self._receive(connection, seal.opened(str(payload), pid), pid)

            await connection.add_listener(seal.channel, on_notification)
            # Roles that see the statements of others see the last one: it must not be the LISTEN. A queue
            # that was full stays so, also once its slowest reader has gone, until this function is called.
            if await connection.fetchval("SELECT /* pulse:listening */ pg_notification_queue_usage()") >= 1:
                raise Unavailable(_QUEUE_IS_FULL)
            # A line that was cut without notice is detected when the next message cannot be sent.
            connection.add_termination_listener(lambda _: self._pending.set())
            if self._is_down:
                log.info("wakeups_recovered")
                self._is_down = False
            # Messages from other servers are lost while the line is down. Messages of this server
            # are still sent.
            self._notify(Wakeup(topics=None, gate_changed=True, settings_changed=True, claims_unknown=True))
            if self._outbox:
                self._pending.set()
            check_at = lease_clock() + LISTEN_CHECK.total_seconds()
            while True:
                with suppress(TimeoutError):
                    # Not wait_for: before Python 3.12 it can swallow the cancellation that ends this loop.
                    async with asyncio.timeout(max(0.0, check_at - lease_clock())):
                        await self._pending.wait()
                if self._strangers.are_too_many:
                    raise Unavailable(
                        "Another role of the database floods the channel. Until the minute is over, work is "
                        "found by polling."
                    )
                if lease_clock() >= check_at:
                    await self._check(connection, secret)
                    check_at = lease_clock() + LISTEN_CHECK.total_seconds()
                    continue
                self._pending.clear()
                await self._send(connection, seal)
                if self._outbox:
                    self._pending.set()
                await asyncio.sleep(NOTIFY_SPACING.total_seconds())
        finally:
            connection.terminate()

    async def _send(self, connection: DatabaseSession, seal: Seal) -> None:
        try:
            await connection.execute(
                "SELECT pg_notify($1, message) FROM unnest($2::text[]) AS message",
                seal.channel,
                [seal.sealed(message, self._pid) for message in self._outbox.take()],
            )
        except BaseException:
            self._outbox.put_back()
            raise
        self._outbox.sent()

    async def _check(self, connection: DatabaseSession, secret: bytes) -> None:
        """Test the line: a quiet line may be cut, or lead to a host that is no longer the
        primary."""
        self._strangers.look()
        if not self._connector.is_current(connection):
            raise ConnectionResetError("the database has moved")
        if await _read_secret(connection) != secret:
            raise ConnectionResetError("the secret of the queue was replaced")

    def _receive(self, connection: DatabaseSession, message: str | None, pid: int) -> None:
        """Pass on a message of another server. None: the session with this process id is no server's."""
        if message is None:
            self._strangers.met(pid)
            if self._strangers.are_too_many:
                connection.terminate()  # nothing more is read; the loop of the line ends
        elif (wakeup := read(message)) is None:
            log.warning("wakeup_not_understood")
        else:
            self._notify(wakeup)

    def _notify(self, wakeup: Wakeup) -> None:
        for heard in self._heard:
            heard(wakeup)


async def _read_secret(connection: DatabaseSession) -> bytes:
    secret: bytes | None = await connection.fetchval(_SQL["read_secret"])
    if secret is None:
        raise Unavailable(_NO_SECRET)
    return secret
