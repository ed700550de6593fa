"""The vitals. Each method sends the SQL section of the same name, on separate connections."""

from __future__ import annotations

from pulse_server.domain.horizon import Holder, HolderKind
from pulse_server.domain.vitals import DatabaseVitals, JobCounts, ReadyTopic
from pulse_server.postgres.database import Database, Rows
from pulse_server.postgres.statements import statements

_SQL = statements("vitals.sql")


class PostgresVitalsRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def ready_by_topic(self, most_topics: int) -> list[ReadyTopic]:
        return [ReadyTopic(*row) for row in await self._fetch("ready_by_topic", most_topics)]

    async def count_jobs(self) -> JobCounts:
        (row,) = await self._fetch("count_jobs")
        return JobCounts(*row)

    async def measure_database(self) -> DatabaseVitals:
        (row,) = await self._fetch("measure_database")
        return DatabaseVitals(*row)

    async def oldest_holder(self) -> Holder | None:
        for kind, *facts in await self._fetch("oldest_holder"):
            return Holder(HolderKind(kind), *facts)
        return None

    async def ping(self) -> None:
        await self._database.probe.fetch("ping", _SQL["ping"])

    async def _fetch(self, name: str, *args: object) -> Rows:
        return await self._database.watch.fetch(name, _SQL[name], *args)
