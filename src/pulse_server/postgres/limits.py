"""Limits. Each method sends the SQL section of the same name; most of them call a function. ADR-0064"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic

import asyncpg

from pulse_server.domain.errors import LimitsLocked, Unavailable
from pulse_server.domain.jobs import NewJob
from pulse_server.domain.limits import (
    NO_LIMIT_POLICY,
    HeldUntil,
    LaneState,
    LimitedClaims,
    LimitedHandover,
    LimitPolicy,
    Limits,
    Rate,
    Repaired,
)
from pulse_server.domain.slots import Slots
from pulse_server.postgres import handovers
from pulse_server.postgres.claimed_steps import with_steps
from pulse_server.postgres.claiming import claimed_jobs, slot_arguments
from pulse_server.postgres.database import Database, Fetch, Rows
from pulse_server.postgres.statements import statements

_SQL = statements("limits.sql")
# How long a change waits for the lock of the jobs table. Every other statement queues behind this
# wait, so it is shorter after a failed try.
_TABLE_LOCK_MILLISECONDS, _HASTY_MILLISECONDS, _HASTY_SECONDS = 300, 30, 10.0
# Past deadlock_timeout (1 s) Postgres cancels an autovacuum that blocks this. It does not cancel a
# manual VACUUM, or one against wraparound: so this is tried rarely.
_VACUUM_MILLISECONDS, _VACUUM_SECONDS = 1300, 60.0


class PostgresLimitRepo:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._hasty_until = self._patient_from = 0.0

    async def claim_limited(self, topics: Sequence[str], slots: Slots, lease: timedelta) -> LimitedClaims:
        statement = _SQL["claim_limited"]
        arguments = [list(topics), *_slot_arguments(slots, lease), slots.running]

        async def past_locked_pools(fetch: Fetch) -> Rows:
            return await _fetch_hastily(fetch, _HASTY_MILLISECONDS, statement, *arguments, [])

        with _lock_named():
            rows = await self._database.hot.fetch(
                "claim_limited", statement, *arguments, None, if_locked=past_locked_pools
            )
        return await self._claimed(rows, slots)

    async def hand_over_limited(
        self, topic: str, jobs: Sequence[NewJob], slots: Slots, lease: timedelta
    ) -> LimitedHandover:
        arguments = _slot_arguments(slots, lease)
        answers, rows = await handovers.hand_over_limited(
            self._database.hot, "hand_over_limited", jobs, topic, *arguments
        )
        return LimitedHandover(answers, await self._claimed(rows, slots, columns_before=4))

    async def _claimed(self, rows: Rows, slots: Slots, columns_before: int = 0) -> LimitedClaims:
        leased = [row for row in rows if row["id"] is not None]
        next_starts = {
            row["topic"]: row["next_start_seconds"]
            for row in rows
            if row["id"] is None and row["topic"] is not None
        }
        # The last two columns are not in a plain claim: the lane, and when the next job may start.
        jobs = claimed_jobs([row[columns_before:-2] for row in leased], slots)
        if lanes := {str(row["id"]): row["lane"] for row in leased if row["lane"]}:
            jobs = [job._replace(lane=lanes.get(job.id)) for job in jobs]
        return LimitedClaims(await with_steps(self._database.hot, jobs), next_starts)

    async def limit_topic(self, topic: str, policy: LimitPolicy) -> None:
        await self._limit_topic(topic, policy, is_retired=False)

    async def retire(self, topic: str) -> None:
        await self._limit_topic(topic, NO_LIMIT_POLICY, is_retired=True)

    async def _limit_topic(self, topic: str, policy: LimitPolicy, *, is_retired: bool) -> None:
        per_lane = 1 if policy.ordered else policy.per_lane
        rate, lane_rate = policy.rate, policy.lane_rate
        await self._with_table_lock(
            "limit_topic",
            *(topic, policy.pool or topic, policy.is_laned, per_lane),
            *(lane_rate and lane_rate.starts, lane_rate and lane_rate.period),
            *(bool(policy.ordered), policy.aging, is_retired, policy.limit),
            *(rate and rate.starts, rate and rate.period),
        )

    async def remove_retired(self) -> list[str]:
        rows = await self._database.operators.fetch("retired_policies", _SQL["retired_policies"])
        removed = []
        for (topic,) in rows:
            ((is_plain,),) = await self._with_table_lock("unlimit_topic", topic)
            if is_plain:
                removed.append(topic)
        return removed

    async def _with_table_lock(self, name: str, *args: object) -> Rows:
        """Unavailable if another session holds the lock of the table or the pool for too
        long."""
        is_hasty = monotonic() < self._hasty_until
        try:
            return await self._wait(_HASTY_MILLISECONDS if is_hasty else _TABLE_LOCK_MILLISECONDS, name, args)
        except LimitsLocked:
            self._hasty_until = monotonic() + _HASTY_SECONDS
            await self._database.operators.log_lock_holder(name)
            if monotonic() < self._patient_from or not await self._is_vacuumed():
                raise
        self._patient_from = monotonic() + _VACUUM_SECONDS
        return await self._wait(_VACUUM_MILLISECONDS, name, args)

    async def _wait(self, milliseconds: int, name: str, args: Sequence[object]) -> Rows:
        async def work(fetch: Fetch) -> Rows:
            return await _fetch_hastily(fetch, milliseconds, _SQL[name], *args)

        with _lock_named():
            return await self._database.operators.transact(name, work)

    async def _is_vacuumed(self) -> bool:
        return bool(await self._database.reads.fetch("vacuums_of_jobs", _SQL["vacuums_of_jobs"]))

    async def hold(self, topic: str, span: timedelta, *, by_operator: bool) -> HeldUntil | None:
        rows = await self._database.operators.fetch("hold", _SQL["hold"], topic, span, by_operator)
        return HeldUntil(rows[0]["closed_until"]) if rows else None

    async def set_lane(self, topic: str, lane: str, weight: int, limit: int | None) -> bool:
        rows = await self._database.operators.fetch("set_lane", _SQL["set_lane"], topic, lane, weight, limit)
        return bool(rows[0]["has_lanes"])

    async def list_limits(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[Limits]:
        named = None if topics is None else list(topics)
        rows = await self._database.reads.fetch("list_limits", _SQL["list_limits"], after, limit, named)
        return [_limits(row) for row in rows]

    async def list_lanes(self, topic: str, *, limit: int, by_share: bool = False) -> list[LaneState]:
        rows = await self._database.reads.fetch("list_lanes", _SQL["list_lanes"], topic, limit, by_share)
        return [
            LaneState(
                row["lane"],
                row["waiting"],
                row["running"],
                row["oldest"],
                row["next_at"],
                row["weight"],
                row["limit"],
            )
            for row in rows
        ]

    async def forget_lanes(self, limit: int) -> int:
        rows = await self._database.operators.fetch("forget_lanes", _SQL["forget_lanes"], limit)
        return int(rows[0]["forgotten"])

    async def sweep(self) -> Repaired:
        rows = await self._database.operators.fetch("sweep", _SQL["sweep"])
        return Repaired(*rows[0])


async def _fetch_hastily(fetch: Fetch, milliseconds: int, statement: str, *args: object) -> Rows:
    """Run a statement that waits for a lock no longer than this."""
    await fetch(f"SET LOCAL lock_timeout = {milliseconds}")
    return await fetch(statement, *args)


@contextmanager
def _lock_named() -> Iterator[None]:
    """Raise LimitsLocked if the statement gave up the wait for a lock."""
    try:
        yield
    except Unavailable as error:
        if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
            raise LimitsLocked from error
        raise


def _slot_arguments(slots: Slots, lease: timedelta) -> list[object]:
    return slot_arguments(slots._replace(packed=()), lease)[:6]


def _limits(row: asyncpg.Record) -> Limits:
    topic, pool = row["topic"], row["name"]
    policy = LimitPolicy(
        limit=row["limit"],
        rate=_rate(row["starts"], row["period"]),
        pool=None if pool == topic else pool,
        per_lane=row["per_lane"],
        lane_rate=_rate(row["lane_starts"], row["lane_period"]),
        turns=row["laned"] or None,
        ordered=row["ordered"] or None,
        aging=row["aging"],
    )
    return Limits(
        topic,
        policy,
        row["running"],
        row["closed_until"],
        row["next_start_at"],
        row["started"],
        row["lanes_are_full"],
    )


def _rate(starts: int | None, period: timedelta | None) -> Rate | None:
    return None if starts is None or period is None else Rate(starts, period)
