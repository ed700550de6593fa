"""Finished jobs are forgotten: by the day, and row by row."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day

import asyncpg

from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.base.ids import PageKey
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Metrics
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.reads import THE_BEGINNING
from pulse_server.jobs.rules import JobStatus
from pulse_server.topics.rules import Kept
from pulse_server.topics.store import kept_from_column

_SQL = statements(
    "work/transitions.sql",
    "work/retention.sql",
    "work/completed_days.sql",
    "database/audit.sql",
)

# ---------------------------------------------------------------- partitions of completed jobs
# Completed jobs by the day. Each method sends the SQL section of the same name.

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
            "delete_expired_completed", partition, kept, after or THE_BEGINNING, limit, not is_day
        )

    async def keep_longer(
        self, day: date, kept: Kept, *, after: PageKey | None, limit: int, without_own: bool
    ) -> DaySweep:
        """Move jobs out of the day's partition if their topic's settings keep them past `kept`.

        With `without_own`, also move unexpired jobs of topics without their own.
        """
        begin = datetime.combine(day, time_of_day(), UTC)
        after = after or THE_BEGINNING
        bounds = begin, begin + _DAY, _MOVED_BYTES
        return await self._walk("keep_longer", partition_of(day), kept, after, limit, *bounds, without_own)

    async def drop_completed_day(self, day: date, unless_changed_since: datetime) -> int | None:
        """Drop the partition. Returns about how many jobs it had, or None if it was not dropped.

        It is not dropped if it does not exist, is in use, or a duration was changed since
        `unless_changed_since`.
        """
        rows = await self._database.hot.fetch(
            "drop_completed_day", _SQL["drop_completed_day"], day, unless_changed_since, if_locked=_skip
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


log = logging.getLogger(__name__)


# ---------------------------------------------------------------- the keeper of days
# Makes the partitions of completed jobs ahead, and drops days that have been kept long enough.
#
# A drop takes an exclusive lock of the parent: completions would queue behind one that waits. So it waits
# for less time than a completion does, and is tried again. Jobs that are kept longer move out of their day
# before; in the default partition or in `pulse.jobs` they would be in the way of every day after.
# docs/figures.md#retention

# Today and two more: a server may be away for two days before jobs have no partition of their own.
DAYS_AHEAD = 3
# Days with their own partition. Every statement that looks for a job locks every partition: with a
# year of days a submit would take half as long again, and the locks of the database could run out.
# Jobs that are kept for longer move to one table.
MOST_DAYS = 60
# Rows that one statement looks at: some 4 ms, and 20 ms if all of them are deleted.
DAY_BATCH = 2000
# Between two statements, and of one connection's time, as in the janitor.
DAY_PAUSE = timedelta(milliseconds=50)
DAY_SHARE = 0.25
# Tries to drop a day in one round, if its lock is not free, and the pause between them.
DROP_TRIES = 5
DROP_PAUSE = timedelta(seconds=1)
# A round rests this many times as long as its statements took: 5% of one connection.
ROUND_REST = 20
# Beyond its last moment a day may get jobs from statements that are under way.
DAY_SETTLED_AFTER = timedelta(minutes=1)
# Jobs whose day had no partition, and jobs whose topic is kept for longer than their day.
_ROW_BY_ROW = ("completed_jobs_default", "completed_jobs_kept")


class DayKeeper:
    """Runs one statement per tick, in rounds. Its state is in memory; any server may continue.

    A round makes the partitions of the next days, drops partitions older than `kept`, and deletes
    row by row where the settings of a topic differ. Without these a round is cheap: a statement
    for each dropped partition, and one for each of the two walked partitions, which are empty.
    """

    def __init__(
        self,
        repo: PostgresCompletedDayRepo,
        publisher: Publisher,
        kept: Kept,
        *,
        interval: timedelta,
        turn: asyncio.Lock | None = None,
        clock: Callable[[], float] = time.monotonic,
        metrics: Metrics | None = None,
    ) -> None:
        """`turn` is shared with the janitor: the two never use two connections."""
        self._repo = repo
        self._publisher = publisher
        self._kept = kept
        self._interval = interval
        self._turn = turn or asyncio.Lock()
        self._clock = clock
        self._round: AsyncGenerator[timedelta, None] | None = None
        self._spent = timedelta()
        self._deleted = 0
        # The days of the last round, and when it saw them.
        self._found: tuple[CompletedDays, float] | None = None
        # Days that have nothing left for the durations as they were then.
        self._swept: set[date] = set()
        self._swept_for: object = None
        self.loop = Loop("completed_days", self.tick, interval)
        if metrics is not None:
            metrics.completed_days_ahead.read = self._days_ahead

    async def add_days(self) -> None:
        """Make the partitions of today and the next days."""
        for day in await self._repo.add_completed_days(DAYS_AHEAD):
            log.info("completed_day_added", extra={"day": day.isoformat()})

    async def tick(self) -> timedelta:
        """Make one step. Returns how long to rest: shortly within a round, an interval after it."""
        if self._round is None:
            self._round, self._spent = self._steps(), timedelta()
        step, self._round = self._round, None  # a step that fails ends the round
        async with self._turn:
            began = self._clock()
            pause = await anext(step, None)
            took = timedelta(seconds=self._clock() - began)
        self._spent += took
        if pause is None:
            self._report()
            return max(self._interval, self._spent * ROUND_REST)
        self._round = step
        return max(pause, took * (1 / DAY_SHARE - 1))

    async def _steps(self) -> AsyncGenerator[timedelta, None]:
        """The steps of a round, each with the least pause after it."""
        # Read before days are added: if that fails from the start on, the metric still shows what is missing.
        self._found = await self._repo.completed_days(), self._clock()
        yield DAY_PAUSE
        await self.add_days()
        yield DAY_PAUSE
        found = await self._repo.completed_days()
        self._found = found, self._clock()
        yield DAY_PAUSE
        for day in found.days:
            if self._is_expired(day, found.now):
                steps = self._drop(day, found)
            elif _end_of(day) + MOST_DAYS * _DAY < found.now:
                steps = self._close(day, found)
            elif self._may_have_expired(day, found):
                steps = self._sweep(f"completed_jobs_{day:%Y%m%d}", day, found)
            else:
                continue
            async for pause in steps:
                yield pause
        if self._kept is None and all(span is None for span in found.kept):
            return  # nothing expires
        for partition in _ROW_BY_ROW:
            async for pause in self._sweep(partition, None, found):
                yield pause

    def _days_ahead(self) -> dict[tuple[str, ...], float]:
        """How many days after today have a partition, without a gap; nothing before the first round."""
        if self._found is None:
            return {}
        found, seen_at = self._found
        today = (found.now + timedelta(seconds=self._clock() - seen_at)).astimezone(UTC).date()
        ahead = itertools.count(1)
        return {(): next(days for days in ahead if today + days * _DAY not in found.days) - 1}

    def _is_expired(self, day: date, now: datetime) -> bool:
        """Whether all jobs of the day are past the setting of this server."""
        return self._kept is not None and _end_of(day) + max(self._kept, DAY_SETTLED_AFTER) < now

    def _may_have_expired(self, day: date, found: CompletedDays) -> bool:
        """Whether the duration of a topic may be over for jobs of the day, and this is not known yet."""
        shorter = [span for span in found.kept if span is not None and is_longer(self._kept, span)]
        if not shorter or _end_of(day) - _DAY + min(shorter) > found.now:
            return False
        if self._swept_for != (found.changed_at, found.kept):
            self._swept_for = (found.changed_at, found.kept)
            self._swept.clear()
        return day not in self._swept

    async def _drop(self, day: date, found: CompletedDays) -> AsyncGenerator[timedelta, None]:
        if any(is_longer(span, self._kept) for span in found.kept):
            moves = _Moves()
            async for pause in self._move(day, moves, without_own=False):
                yield pause
            if not moves.are_done:
                return
        for _ in range(DROP_TRIES):
            jobs = await self._repo.drop_completed_day(day, found.now)
            if jobs is not None:
                self._publisher.deleted({JobStatus.COMPLETED: jobs}, "retention")
                log.info("completed_day_dropped", extra={"day": day.isoformat(), "jobs": jobs})
                yield DAY_PAUSE
                return
            yield DROP_PAUSE

    async def _close(self, day: date, found: CompletedDays) -> AsyncGenerator[timedelta, None]:
        """Delete jobs past the duration of their topic, move the rest, and drop the partition once empty."""
        async for pause in self._sweep(f"completed_jobs_{day:%Y%m%d}", day, found):
            yield pause
        moves = _Moves()
        async for pause in self._move(day, moves, without_own=True):
            yield pause
        if not moves.are_done:
            return
        rest = await self._repo.keep_longer(day, self._kept, after=None, limit=1, without_own=True)
        yield DAY_PAUSE
        if rest.is_taken or rest.looked_at:
            return  # the next round has another look
        if await self._repo.drop_completed_day(day, found.now) is not None:
            log.info("completed_day_closed", extra={"day": day.isoformat(), "jobs": moves.moved})
        yield DAY_PAUSE

    async def _move(self, day: date, moves: _Moves, *, without_own: bool) -> AsyncGenerator[timedelta, None]:
        """Move the jobs of a day that are kept for longer than it."""
        after: PageKey | None = None
        while True:
            sweep = await self._repo.keep_longer(
                day, self._kept, after=after, limit=DAY_BATCH, without_own=without_own
            )
            moves.moved += sweep.changed
            yield DAY_PAUSE
            if sweep.is_taken:
                return
            if sweep.left_over:
                continue  # some rows of this batch did not fit
            after = sweep.reached or after
            if sweep.looked_at < DAY_BATCH:
                moves.are_done = True
                return

    async def _sweep(
        self, partition: str, day: date | None, found: CompletedDays
    ) -> AsyncGenerator[timedelta, None]:
        """Delete expired jobs row by row."""
        after: PageKey | None = None
        sweep = DaySweep(looked_at=DAY_BATCH)
        while sweep.looked_at == DAY_BATCH:
            sweep = await self._repo.delete_expired_completed(
                partition, self._kept, after=after, limit=DAY_BATCH
            )
            after = sweep.reached or after
            if sweep.changed:
                self._publisher.deleted({JobStatus.COMPLETED: sweep.changed}, "retention")
                self._deleted += sweep.changed
            yield DAY_PAUSE
            if sweep.is_taken:
                return
        shorter = [span for span in found.kept if span is not None and is_longer(self._kept, span)]
        if day is not None and shorter and _end_of(day) + max(shorter) + DAY_SETTLED_AFTER < found.now:
            self._swept.add(day)

    def _report(self) -> None:
        if self._deleted:
            log.info("jobs_deleted", extra={JobStatus.COMPLETED.value: self._deleted})
            self._deleted = 0


@dataclass(slots=True)
class _Moves:
    moved: int = 0
    are_done: bool = False


def _end_of(day: date) -> datetime:
    return datetime.combine(day, time_of_day(), UTC) + _DAY


def is_longer(one: Kept, other: Kept) -> bool:
    if other is None:
        return False
    return one is None or one > other


# ---------------------------------------------------------------- retention
# Retention: finished jobs, throttled keys and states of workers that left are deleted row by row, completed
# jobs by the day.
#
# Each statement deletes a bounded number of rows that it has locked and checked under the lock: a retry
# that came first wins. Between statements it rests, and no lock outlives a statement: a pass in one
# transaction would keep vacuum from everything. docs/figures.md#retention

# Between two passes, and with it how long a job may be kept beyond its time.
RETENTION_INTERVAL = timedelta(minutes=5)
# Rows looked at per statement, deleted or not: 20 ms of work if all of them go, 4 ms if none.
RETENTION_BATCH = 1000
# Workflows that one statement deletes, with up to 10,000 jobs each.
WORKFLOW_BATCH = 20
# A pass continues where the last one ended. When the walk starts over, it finds the jobs that were
# unfinished or too young before.
RETENTION_START_OVER = timedelta(hours=1)
# The share of one connection's time, however much there is to delete: 14,000 jobs/s at 18 ms a
# batch, as many as one server completes. And the shortest pause between two statements.
RETENTION_SHARE = 0.25
RETENTION_PAUSE = timedelta(milliseconds=50)
# How long a worker process must be away until its state is deleted. One that was cut off for less, and
# connects again, is as quiet as an operator wants it.
WORKER_AWAY = timedelta(days=1)
_STATUSES = {
    "completed": JobStatus.COMPLETED,
    "canceled": JobStatus.CANCELED,
    "dead_lettered": JobStatus.DEAD_LETTERED,
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """One step of the walk: the number of jobs read, the last one, and the deleted jobs by
    status."""

    looked_at: int = 0
    reached: PageKey | None = None
    deleted: Mapping[JobStatus, int] = field(default_factory=dict)
    is_taken: bool = False
    """Another server runs the walk; this step read nothing."""


class ExpiredJobs:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def delete_expired(
        self, kept: Mapping[JobStatus, Kept], *, after: PageKey | None, limit: int
    ) -> Sweep:
        """Delete expired jobs among the oldest `limit` jobs after `after`, in submission order.

        `kept` has the durations for topics without their own. The walk is over when a step reads
        fewer than `limit` jobs: later jobs are too young.
        """
        after = after or THE_BEGINNING
        # With the plans of the hot path: otherwise the planner sorts the whole table when its
        # statistics are missing or stale.
        (row,) = await self._database.hot.fetch(
            "delete_expired",
            _SQL["delete_expired"],
            *(kept.get(status) for status in _STATUSES.values()),
            min((span for span in kept.values() if span is not None), default=None),
            after.moment,
            after.id,
            limit,
        )
        if not row["is_ours"]:
            await self._database.hot.log_lock_holder("delete_expired")
        return Sweep(
            looked_at=row["looked_at"],
            reached=PageKey(row["submitted_at"], str(row["id"])) if row["looked_at"] else None,
            deleted={status: row[name] for name, status in _STATUSES.items() if row[name]},
            is_taken=not row["is_ours"],
        )

    async def delete_workflows(self, kept: Mapping[JobStatus, Kept], limit: int) -> int:
        """Delete workflows that ended long enough ago. Returns their number, at most `limit`."""
        canceled, dead = kept.get(JobStatus.CANCELED), kept.get(JobStatus.DEAD_LETTERED)
        rows = await self._database.hot.fetch(
            "delete_workflows",
            _SQL["delete_workflows"],
            kept.get(JobStatus.COMPLETED),
            None if canceled is None or dead is None else max(canceled, dead),
            limit,
        )
        return len(rows)

    async def forget_periods(self, limit: int) -> int:
        """Delete expired periods of throttled keys. Returns their number, at most `limit`."""
        (row,) = await self._database.hot.fetch("forget_periods", _SQL["forget_periods"], limit)
        return int(row["forgotten"])

    async def delete_old_audit(self, kept: timedelta, limit: int) -> int:
        """Delete entries of the audit that are older. Returns their number, at most `limit`."""
        rows = await self._database.hot.fetch("delete_old_audit", _SQL["delete_old_audit"], kept, limit)
        return len(rows)

    async def forget_worker_states(self, away: timedelta) -> None:
        """Delete the states of worker processes that have been away for longer."""
        await self._database.hot.fetch("forget_worker_states", _SQL["forget_worker_states"], away)


class Janitor:
    """Walks the jobs in the order of their submission, one statement per tick, and rests in between.

    A pass goes from where the last one ended to where the jobs are too young, and every so often from the
    beginning: a job may have been passed while it was still alive. Where it stands is kept in memory only; a
    server that starts begins at the beginning.
    """

    def __init__(
        self,
        expired: ExpiredJobs,
        publisher: Publisher,
        kept: Mapping[JobStatus, Kept],
        *,
        interval: timedelta,
        audit_kept: Kept = None,
        turn: asyncio.Lock | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`turn` is shared with the keeper of the days: the two never use two connections."""
        self._turn = turn or asyncio.Lock()
        self._expired = expired
        self._kept = kept
        self._audit_kept = audit_kept
        self._interval = interval
        self._publisher = publisher
        self._clock = clock
        self._reached: PageKey | None = None
        self._started_over = clock()
        self._deleted: Counter[str] = Counter()
        self.loop = Loop("janitor", self.tick, interval)

    async def tick(self) -> timedelta:
        """Look at one batch. Returns how long to rest: shortly within a pass, an interval after it."""
        async with self._turn:
            began = self._clock()
            sweep = await self._expired.delete_expired(self._kept, after=self._reached, limit=RETENTION_BATCH)
            is_over = sweep.is_taken or sweep.looked_at < RETENTION_BATCH
            if is_over:
                await self._forget_periods()
                await self._delete_workflows()
                await self._delete_old_audit()
                await self._expired.forget_worker_states(WORKER_AWAY)
        self._publisher.deleted(sweep.deleted, "retention")
        for status, count in sweep.deleted.items():
            self._deleted[status.value] += count
        self._reached = sweep.reached or self._reached
        if is_over:
            self._end_pass()
            return self._interval
        took = timedelta(seconds=self._clock() - began)
        return max(RETENTION_PAUSE, took * (1 / RETENTION_SHARE - 1))

    async def _forget_periods(self) -> None:
        """Delete throttled keys whose period is over, in batches."""
        forgotten = RETENTION_BATCH
        while forgotten == RETENTION_BATCH:
            forgotten = await self._expired.forget_periods(RETENTION_BATCH)

    async def _delete_workflows(self) -> None:
        deleted = WORKFLOW_BATCH
        while deleted == WORKFLOW_BATCH:
            deleted = await self._expired.delete_workflows(self._kept, WORKFLOW_BATCH)

    async def _delete_old_audit(self) -> None:
        kept, deleted = self._audit_kept, RETENTION_BATCH
        while kept is not None and deleted == RETENTION_BATCH:
            deleted = await self._expired.delete_old_audit(kept, RETENTION_BATCH)

    def _end_pass(self) -> None:
        if self._deleted:
            log.info("jobs_deleted", extra=dict(self._deleted))
            self._deleted.clear()
        now = self._clock()
        if now - self._started_over >= RETENTION_START_OVER.total_seconds():
            self._started_over = now
            self._reached = None


class RetentionKeeping:
    """The janitor and the keeper of the days. They take turns, and use one connection between them."""

    def __init__(
        self,
        expired: ExpiredJobs,
        days: PostgresCompletedDayRepo,
        publisher: Publisher,
        kept: Mapping[JobStatus, Kept],
        *,
        interval: timedelta = RETENTION_INTERVAL,
        audit_kept: Kept = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.kept = kept
        turn = asyncio.Lock()
        self.janitor = Janitor(expired, publisher, kept, interval=interval, audit_kept=audit_kept, turn=turn)
        self.day_keeper = DayKeeper(
            days, publisher, kept[JobStatus.COMPLETED], interval=interval, turn=turn, metrics=metrics
        )

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.janitor.loop, self.day_keeper.loop)

    async def prepare(self) -> None:
        """Make today's partition before the first job is completed. If this fails, the loop tries again."""
        with suppress(PulseError):
            await self.day_keeper.add_days()
