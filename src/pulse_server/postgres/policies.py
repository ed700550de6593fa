"""The policies of topics. Each method sends the SQL section of its own name."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import asyncpg

from pulse_server.domain.policies import Kept, PolicyChange, TopicPolicy
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.database import Database, Fetch, Rows
from pulse_server.postgres.statements import statements

_SQL = statements("policies.sql")
_COLUMNS = {
    JobStatus.COMPLETED: "completed_kept",
    JobStatus.CANCELED: "canceled_kept",
    JobStatus.DEAD_LETTERED: "dead_lettered_kept",
}
# Stored for `forever`: longer than any duration that is accepted, and short enough that Postgres can subtract
# it from the present.
_FOREVER = timedelta(days=365_000)


class PostgresPolicyRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def set_policy(self, topic: str, change: PolicyChange, by: str) -> TopicPolicy:
        arguments: list[object] = [topic]
        for status in _COLUMNS:
            is_kept = status in change.kept
            arguments += [
                is_kept or status in change.returned,
                _stored(change.kept[status]) if is_kept else None,
            ]

        async def work(fetch: Fetch) -> Rows:
            rows = await fetch(_SQL["set_policy"], *arguments, by)
            await fetch(_SQL["delete_empty_policy"], topic)
            return rows

        (row,) = await self._database.operators.transact("set_policy", work)
        policy = _policy(row)
        return policy if policy.kept else TopicPolicy(topic)

    async def list_policies(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[TopicPolicy]:
        rows = await self._database.reads.fetch(
            *("list_policies", _SQL["list_policies"], after, limit),
            list(topics) if topics is not None else None,
        )
        return [_policy(row) for row in rows]


def kept_from_column(span: timedelta) -> Kept:
    return None if span >= _FOREVER else span


def _stored(kept: Kept) -> timedelta:
    return _FOREVER if kept is None else kept


def _policy(row: asyncpg.Record) -> TopicPolicy:
    kept = {
        status: kept_from_column(row[column])
        for status, column in _COLUMNS.items()
        if row[column] is not None
    }
    return TopicPolicy(row["topic"], kept, row["set_by"], row["set_at"])
