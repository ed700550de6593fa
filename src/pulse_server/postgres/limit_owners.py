"""Who owns a limit. Each method sends the SQL section of the same name. ADR-0065"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from pulse_server.domain.limit_owners import GRACE, LimitDeclaration, LimitOwners
from pulse_server.domain.limits import NO_LIMIT_POLICY, LimitPolicy, Rate
from pulse_server.postgres.database import Database
from pulse_server.postgres.statements import statements

_SQL = statements("limit_owners.sql")
# A server records its workers every 5 s. A server that is silent for longer may have lost them.
_SERVER_SILENCE = timedelta(seconds=20)


class PostgresLimitOwnerRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def declare_limits(self, declared: Mapping[str, LimitPolicy], by: str) -> None:
        """Store a worker's declarations by topic. A blank policy withdraws its declaration."""
        topics = sorted(declared)
        texts = [limit_policy_to_json(declared[topic]) for topic in topics]
        await self._database.operators.fetch("declare_limits", _SQL["declare_limits"], topics, texts, by)

    async def read_owners(self, topics: Collection[str] | None = None) -> list[LimitOwners]:
        """Overrides and declarations by topic. With `topics`, only these."""
        named = None if topics is None else list(topics)
        rows = await self._database.reads.fetch(
            "read_owners", _SQL["read_owners"], named, _SERVER_SILENCE, GRACE
        )
        return [_owners(row) for row in rows]

    async def mark_missing(self) -> None:
        """Record which of the workers with declarations are connected."""
        await self._database.operators.fetch("mark_missing", _SQL["mark_missing"], _SERVER_SILENCE)

    async def forget_declarations(self, topics: Collection[str], after: timedelta) -> None:
        """Delete declarations of workers that have been away for at least `after`."""
        statement = _SQL["forget_declarations"]
        await self._database.operators.fetch("forget_declarations", statement, list(topics), after)

    async def forget_owners(self, topics: Collection[str]) -> None:
        """Delete empty entries."""
        await self._database.operators.fetch("forget_owners", _SQL["forget_owners"], list(topics))


def limit_policy_to_json(policy: LimitPolicy) -> str:
    entries: dict[str, Any] = {
        "limit": policy.limit,
        "rate": _rate_to_json(policy.rate),
        "pool": policy.pool,
        "per_lane": policy.per_lane,
        "lane_rate": _rate_to_json(policy.lane_rate),
        "turns": policy.turns,
        "ordered": policy.ordered,
        "aging": None if policy.aging is None else policy.aging.total_seconds(),
    }
    return json.dumps({name: value for name, value in entries.items() if value is not None})


def limit_policy_from_json(entries: Mapping[str, Any]) -> LimitPolicy:
    if not entries:
        return NO_LIMIT_POLICY
    aging = entries.get("aging")
    return LimitPolicy(
        limit=entries.get("limit"),
        rate=_rate_from_json(entries.get("rate")),
        pool=entries.get("pool"),
        per_lane=entries.get("per_lane"),
        lane_rate=_rate_from_json(entries.get("lane_rate")),
        turns=entries.get("turns"),
        ordered=entries.get("ordered"),
        aging=None if aging is None else timedelta(seconds=aging),
    )


def _rate_to_json(rate: Rate | None) -> dict[str, float] | None:
    return None if rate is None else {"starts": rate.starts, "period": rate.period.total_seconds()}


def _rate_from_json(rate: Mapping[str, Any] | None) -> Rate | None:
    return None if rate is None else Rate(rate["starts"], timedelta(seconds=rate["period"]))


def _owners(row: asyncpg.Record) -> LimitOwners:
    return LimitOwners(
        row["topic"],
        limit_policy_from_json(json.loads(row["overrides"] or "{}")),
        row["set_by"] or "",
        row["set_at"],
        [_declaration(entry) for entry in json.loads(row["declarations"] or "[]")],
        row["is_served"],
        row["has_moved"],
    )


def _declaration(entry: Mapping[str, Any]) -> LimitDeclaration:
    missing = entry["missing_seconds"]
    return LimitDeclaration(
        limit_policy_from_json(entry["declared"]),
        entry["workers"],
        entry["worker_id"],
        datetime.fromtimestamp(entry["declared_at"], UTC),
        None if missing is None else timedelta(seconds=missing),
    )
