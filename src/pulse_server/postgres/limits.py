"""Limits. Each method sends the SQL section of the same name; most of them call a function. ADR-0064"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

import asyncpg

from pulse.topic_settings import Entries, Rate
from pulse_server.base.errors import LimitsLocked, PulseError
from pulse_server.database import audit
from pulse_server.database import audit as database_audit
from pulse_server.database.connections import Connections, Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.dispatch.store import HASTY_MILLISECONDS, PostgresLimitedClaims, fetch_hastily, lock_named
from pulse_server.domain.limits import (
    HeldUntil,
    LaneState,
    Limits,
    OpenTransaction,
    Repaired,
    pending,
)

_SQL = statements("limits.sql")
# How long a change waits for a lock of a running job or of the pool; ends of the topic's jobs wait with it.
# Longer after a transaction that has ended since: many short ones, of a slow database. Below
# deadlock_timeout (1 s).
_PATIENT_MILLISECONDS, _LONGEST_MILLISECONDS = 300, 900
# A claim of a server takes no longer than its statement may. All that were under way before the mark have
# ended in time, so this is not the session of another program.
_LONGEST_START_MILLISECONDS = 5000
_BETWEEN_LOOKS = timedelta(milliseconds=10)
# What limit_topic_v1 returns.
_IN_FORCE, _LOCKED, _UNMARKED = "in force", "locked", "unmarked"


class PostgresLimitRepo(PostgresLimitedClaims):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._met: dict[str, _Obstacle] = {}

    async def limit_topic(self, topic: str, limits: Entries) -> Sequence[OpenTransaction] | None:
        """Put the limits in force. Every server applies them from its next claim on.

        Returns the transactions that have to end first; nothing is changed then. None: they are in force.
        """
        return await self._limit_topic(topic, limits, is_retired=False)

    async def retire(self, topic: str) -> Sequence[OpenTransaction] | None:
        """Stop limiting the topic, as `limit_topic`. Its row is removed later by `remove_retired`."""
        return await self._limit_topic(topic, {}, is_retired=True)

    async def _limit_topic(
        self, topic: str, limits: Entries, *, is_retired: bool
    ) -> Sequence[OpenTransaction] | None:
        ordered = bool(limits.get("ordered"))
        per_lane = 1 if ordered else limits.get("per_lane")
        rate, lane_rate = limits.get("rate"), limits.get("lane_rate")
        is_laned = (
            per_lane is not None or lane_rate is not None or "aging" in limits or bool(limits.get("turns"))
        )
        change = _Change(
            self._database.operators,
            topic,
            (
                *(topic, limits.get("pool", topic), is_laned, per_lane),
                *(lane_rate and lane_rate.starts, lane_rate and lane_rate.per),
                *(ordered, limits.get("aging"), is_retired, limits.get("running")),
                *(rate and rate.starts, rate and rate.per),
            ),
            self._met.pop(topic, None),
        )
        met = await change.make()
        if met is None:
            return None
        self._met[topic] = met
        change_of_entry = {"pending": {"old": None, "new": pending(met.holders)}}

        async def work(fetch: Fetch) -> Rows:
            await audit.add_to_entry(fetch, topic, change_of_entry)
            return []

        if database_audit.current() is not None:
            await self._database.operators.transact("note_pending", work)
        return met.holders

    async def unmark(self, wanted: Collection[str]) -> list[str]:
        """Let plain claims take topics again that a server was about to limit when it was killed.

        Not those that are `wanted` limited, which the next try limits. Returns these topics.
        """
        rows = await self._database.operators.fetch("marked_topics", _SQL["marked_topics"], list(wanted))
        unmarked = []
        for (topic,) in rows:
            ((is_plain,),) = await self._database.operators.fetch(
                "unmark_topic", _SQL["unmark_topic"], topic, None
            )
            if is_plain:
                unmarked.append(topic)
        return unmarked

    async def remove_retired(self) -> list[str]:
        """End what changes of limits have left, and make retired topics plain. Returns these topics."""
        rows = await self._database.operators.fetch("unsettled_topics", _SQL["unsettled_topics"])
        removed = []
        for (topic,) in rows:
            with suppress(LimitsLocked):  # the next round meets it again
                ((is_plain,),) = await _wait(
                    self._database.operators, HASTY_MILLISECONDS, "unlimit_topic", topic
                )
                if is_plain:
                    removed.append(topic)
        return removed

    async def hold(self, topic: str, span: timedelta, *, by_operator: bool) -> HeldUntil | None:
        """Start no job of the topic, nor of other topics in its pool, for `span`; zero ends the
        hold.

        The longest hold counts. A worker cannot end an operator's hold. Returns the time when the
        topic's hold ends, or None if the topic is not limited.
        """
        rows = await self._database.operators.fetch("hold", _SQL["hold"], topic, span, by_operator)
        return HeldUntil(rows[0]["closed_until"]) if rows else None

    async def set_lane(self, topic: str, lane: str, weight: int, limit: int | None) -> bool:
        """Set the weight and limit of one lane. False: the topic has no lanes."""
        rows = await self._database.operators.fetch("set_lane", _SQL["set_lane"], topic, lane, weight, limit)
        return bool(rows[0]["has_lanes"])

    async def list_limits(
        self, *, limit: int, after: str = "", topics: Collection[str] | None = None
    ) -> list[Limits]:
        """Limited topics by name, after `after`. With `topics`, only these."""
        named = None if topics is None else list(topics)
        rows = await self._database.reads.fetch("list_limits", _SQL["list_limits"], after, limit, named)
        return [_limits(row) for row in rows]

    async def list_lanes(self, topic: str, *, limit: int, by_share: bool = False) -> list[LaneState]:
        """The longest-waiting lanes; with `by_share`, the lanes with the most running jobs."""
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
        """Delete lanes that were not used for a long time. Returns their number."""
        rows = await self._database.operators.fetch("forget_lanes", _SQL["forget_lanes"], limit)
        return int(rows[0]["forgotten"])

    async def sweep(self) -> Repaired:
        """Compare the stored counts with the running jobs, and correct wrong counts."""
        rows = await self._database.operators.fetch("sweep", _SQL["sweep"])
        return Repaired(*rows[0])


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """What a change of the limits of a topic has met, for the next try."""

    holders: Sequence[OpenTransaction]
    starts: Sequence[str]
    """Claims of plain topics that were under way."""


class _Change:
    """A try to change the limits of one topic. ADR-0085"""

    def __init__(
        self, database: Connections, topic: str, arguments: Sequence[object], met_before: _Obstacle | None
    ) -> None:
        self._database = database
        self._topic = topic
        self._arguments = arguments
        self._met_before = met_before
        self._patience = _PATIENT_MILLISECONDS if met_before is None else _LONGEST_MILLISECONDS

    async def make(self) -> _Obstacle | None:
        """Returns None once it is in force; else which transactions have to end first.

        It may find none of them, as for a lock that several sessions share.
        """
        if (before := self._met_before) is not None:
            met_now = await self._obstacle(before.starts)
            if not set(before.holders).isdisjoint(met_now.holders):
                # A try would keep ends of jobs waiting for nothing. So a mark is of a server that was killed.
                await self._unmark(None)
                return met_now
        mark: int | None = None
        until = monotonic() + _PATIENT_MILLISECONDS / 1000
        try:
            while (met := await self._try(mark)) != _IN_FORCE:
                if met == _LOCKED or (mark is not None and monotonic() >= until):
                    return await self._obstacle()
                if met == _UNMARKED:
                    # Those before the mark first: the topic goes on until they have ended.
                    known = before.starts if before is not None else ()
                    if starts := await self._remaining_starts(_PATIENT_MILLISECONDS, known):
                        return await self._obstacle(starts)
                    mark = await self._mark()
                    if starts := await self._remaining_starts(_LONGEST_START_MILLISECONDS):
                        return await self._obstacle(starts)
            mark = None
            return None
        finally:
            if mark is not None:
                # Also if this is canceled: until then no job of the topic starts. If it fails, or this
                # server is killed, the loop of any server ends the mark.
                with suppress(PulseError):
                    await asyncio.shield(self._end(mark))

    async def _try(self, mark: int | None) -> str:
        try:
            rows = await _wait(self._database, self._patience, "limit_topic", *self._arguments, mark)
        except LimitsLocked:
            return _LOCKED
        return str(rows[0]["met"])

    async def _mark(self) -> int | None:
        rows = await self._database.fetch("mark_topic", _SQL["mark_topic"], self._topic)
        # Another server is at it, or was killed.
        rows = rows or await self._database.fetch("read_mark", _SQL["read_mark"], self._topic)
        return rows[0]["mark"] if rows else None

    async def _end(self, mark: int) -> None:
        # A pause that has written the row since has made another mark of it. So has another server: that
        # one sets its mark once more.
        if not await self._unmark(mark):
            await self._unmark(None)

    async def _unmark(self, mark: int | None) -> bool:
        rows = await self._database.fetch("unmark_topic", _SQL["unmark_topic"], self._topic, mark)
        return bool(rows[0]["is_plain"])

    async def _remaining_starts(self, patience: int, among: Sequence[str] = ()) -> Sequence[str]:
        """Returns which plain claims under way do not end in time."""
        until = monotonic() + patience / 1000
        while True:
            rows = await self._database.fetch("plain_starts", _SQL["plain_starts"], list(among) or None)
            among = [number for (number,) in rows]
            if not among or monotonic() >= until:
                return among
            await asyncio.sleep(_BETWEEN_LOOKS.total_seconds())

    async def _obstacle(self, starts: Sequence[str] = ()) -> _Obstacle:
        pools = [self._arguments[1], self._topic]
        rows = await self._database.fetch(
            "open_transactions", _SQL["open_transactions"], self._topic, pools, list(starts)
        )
        return _Obstacle([OpenTransaction(*row) for row in rows], starts)


async def _wait(database: Connections, milliseconds: int, name: str, *args: object) -> Rows:
    """Run a statement of its own transaction. LimitsLocked if a lock is not free in time."""

    async def work(fetch: Fetch) -> Rows:
        return await fetch_hastily(fetch, milliseconds, _SQL[name], *args)

    with lock_named():
        return await database.transact(name, work)


def _limits(row: asyncpg.Record) -> Limits:
    topic, pool = row["topic"], row["name"]
    limits = {
        "running": row["limit"],
        "rate": _rate(row["starts"], row["period"]),
        "pool": None if pool == topic else pool,
        "per_lane": row["per_lane"],
        "lane_rate": _rate(row["lane_starts"], row["lane_period"]),
        "turns": row["laned"] or None,
        "ordered": row["ordered"] or None,
        "aging": row["aging"],
    }
    return Limits(
        topic,
        {name: value for name, value in limits.items() if value is not None},
        row["running"],
        row["closed_until"],
        row["next_start_at"],
        row["started"],
        row["lanes_are_full"],
    )


def _rate(starts: int | None, period: timedelta | None) -> Rate | None:
    return None if starts is None or period is None else Rate(starts, period)
