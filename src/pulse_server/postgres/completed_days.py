"""Completed jobs by the day. Each method sends the SQL section of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import asyncpg

from pulse_server.base.errors import Unavailable
from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.jobs.reads import THE_BEGINNING
from pulse_server.topics.rules import Kept
from pulse_server.topics.store import kept_from_column

_SQL = statements("completed_days.sql")
# Bytes moved per statement: it rewrites the rows, including values stored out of line.
_MOVED_BYTES = 8 * 1024 * 1024
_DAY = timedelta(days=1)
# One server at a time. Its step ends soon; a session that has the task for longer is logged.
_TASK = "completed_days"


@dataclass(frozen=True, slots=True)
class CompletedDays:
    """The days that have a partition, and the settings for completed jobs, at time `now`."""

    now: datetime
    days: Sequence[date]
    kept: Sequence[Kept]
    """Durations in force of topics with their own, sorted. None: forever."""
    changed_at: datetime | None
    """When the durations of a topic were last changed; None if no topic has its own."""


@dataclass(frozen=True, slots=True)
class DaySweep:
    """The result of one step of a walk over a partition."""

    looked_at: int = 0
    reached: PageKey | None = None
    changed: int = 0
    """The number of jobs deleted or moved."""
    left_over: int = 0
    """Jobs that had to move but did not fit into this step."""
    is_taken: bool = False
    """Another server walks this partition, or a lock is held too long. The step did nothing."""


def partition_of(day: date) -> str:
    return f"completed_jobs_{day:%Y%m%d}"


class PostgresCompletedDayRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_completed_days(self, count: int) -> Sequence[date]:
        """Make the missing partitions for today and the next days. Returns the new days."""
        rows = await self._database.hot.fetch(
            "add_completed_days", _SQL["add_completed_days"], count, if_locked=_skip
        )
        made: Sequence[date] | None = rows[0]["made"] if rows else ()
        if made is None:
            await self._database.hot.log_lock_holder(_TASK)
        return made or ()

    async def completed_days(self) -> CompletedDays:
        (row,) = await self._database.hot.fetch("completed_days", _SQL["completed_days"])
        return CompletedDays(
            row["now"], row["days"], [kept_from_column(span) for span in row["kept"]], row["changed_at"]
        )

    async def delete_expired_completed(
        self, partition: str, kept: Kept, *, after: PageKey | None, limit: int
    ) -> DaySweep:
        """Delete jobs of the partition past the duration in their topic's settings, or past `kept`.

        In a day's partition this only deletes jobs whose topic has its own duration. Dropping the day
        deletes the rest.
        """
        is_day = _is_day(partition)
        return await self._walk(
            *("delete_expired_completed", partition, kept, after or THE_BEGINNING, limit), not is_day
        )

    async def keep_longer(
        self, day: date, kept: Kept, *, after: PageKey | None, limit: int, without_own: bool
    ) -> DaySweep:
        """Move jobs out of the day's partition if their topic's settings keep them past `kept`.

        With `without_own`, also move unexpired jobs of topics without their own.
        """
        begin = datetime.combine(day, time(), UTC)
        after = after or THE_BEGINNING
        bounds = begin, begin + _DAY, _MOVED_BYTES
        return await self._walk(*("keep_longer", partition_of(day), kept, after, limit), *bounds, without_own)

    async def drop_completed_day(self, day: date, unless_changed_since: datetime) -> int | None:
        """Drop the partition. Returns about how many jobs it had, or None if it was not dropped.

        It is not dropped if it does not exist, is in use, or a duration was changed since
        `unless_changed_since`.
        """
        rows = await self._database.hot.fetch(
            *("drop_completed_day", _SQL["drop_completed_day"], day, unless_changed_since), if_locked=_skip
        )
        return rows[0]["jobs"] if rows else None

    async def _walk(
        self, name: str, partition: str, kept: Kept, after: PageKey, limit: int, *rest: object
    ) -> DaySweep:
        statement = _SQL[name].replace("pulse.completed_jobs_day ", f"pulse.{partition} ")
        try:
            rows = await self._database.hot.fetch(
                name, statement, kept, after.moment, after.id, limit, *rest, if_locked=_skip
            )
        except Unavailable as error:
            if _is_gone(error, partition):
                return DaySweep(is_taken=True)
            raise
        if not rows:
            return DaySweep(is_taken=True)
        row = rows[0]
        if not row["is_ours"]:
            await self._database.hot.log_lock_holder(_TASK)
            return DaySweep(is_taken=True)
        return DaySweep(
            row["looked_at"],
            PageKey(row["submitted_at"], str(row["id"])) if row["looked_at"] else None,
            row["changed"],
            row["left_over"],
        )


def _is_gone(error: Unavailable, partition: str) -> bool:
    """Whether another server has dropped the day since it was listed."""
    return isinstance(error.__cause__, asyncpg.UndefinedTableError) and _is_day(partition)


def _is_day(partition: str) -> bool:
    """Whether the partition has the jobs of one day, and is dropped as a whole."""
    return partition[-8:].isdecimal()


async def _skip(_fetch: Fetch) -> Rows:
    """Skip a statement that met a lock. The next round tries again."""
    return []
