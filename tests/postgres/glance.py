"""Topics, minutes and servers on one database, and a way to make time pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from pulse_server.database.connections import Database
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.views.servers import Servers
from pulse_server.views.statistics import Minutes, Topics
from tests.fakes.clock import Seconds
from tests.fakes.store import Store
from tests.postgres.sessions import Connection


def servers_on(
    database: Database, name: str = "here:1", connected: Callable[[], Sequence[ConnectedWorker]] = tuple
) -> Servers:
    return Servers(database, name, connected, interval=timedelta(seconds=1))


class Glance:
    """`clock` is the clock of the caches."""

    def __init__(self, database: Database, connection: Connection, store: Store) -> None:
        self.database = database
        self.store = store
        self.clock = Seconds()
        self.topics = Topics(database, clock=self.clock)
        self.minutes = Minutes(database, clock=self.clock)
        self.servers = servers_on(database)
        self._connection = connection

    async def clear(self) -> None:
        """Delete statistics and servers, and let no minute end within the test."""
        await self._connection.execute("TRUNCATE pulse.topic_minutes, pulse.servers")
        second = await self._connection.fetchval("SELECT EXTRACT(second FROM clock_timestamp())::float8")
        if second > 57:
            await asyncio.sleep(60 - second)

    async def elapse(self, duration: timedelta) -> None:
        """Make statistics and servers older."""
        execute = self._connection.execute
        # Two minutes apart stay so: the moves must not meet on their way.
        await execute("ALTER TABLE pulse.topic_minutes DROP CONSTRAINT topic_minutes_pkey")
        await execute("UPDATE pulse.topic_minutes SET minute = minute - $1::interval", duration)
        await execute("ALTER TABLE pulse.topic_minutes ADD PRIMARY KEY (minute, topic)")
        await execute("UPDATE pulse.servers SET seen_at = seen_at - $1::interval", duration)

    async def topics_with_minutes(self) -> set[str]:
        """The topics that have statistics."""
        return {row["topic"] for row in await self._connection.fetch("SELECT topic FROM pulse.topic_minutes")}

    async def server_names(self) -> list[str]:
        """The servers that have a row, by name."""
        rows = await self._connection.fetch("SELECT name FROM pulse.servers ORDER BY name")
        return [row["name"] for row in rows]
