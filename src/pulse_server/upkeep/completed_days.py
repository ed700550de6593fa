"""Makes the partitions of completed jobs ahead, and drops days that have been kept long enough. ADR-0058"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day

from pulse_server.base.ids import PageKey
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Metrics
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.rules import JobStatus
from pulse_server.postgres.completed_days import CompletedDays, DaySweep, PostgresCompletedDayRepo
from pulse_server.topics.rules import Kept

log = logging.getLogger(__name__)

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

_DAY = timedelta(days=1)
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
