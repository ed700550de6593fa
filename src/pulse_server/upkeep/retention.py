"""Retention: finished jobs, throttled keys and states of workers that left are deleted row by row, completed
jobs by the day. ADR-0021
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from pulse_server.base.errors import PulseError
from pulse_server.base.ids import PageKey
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Metrics
from pulse_server.database.connections import Database
from pulse_server.database.statements import statements
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.reads import THE_BEGINNING
from pulse_server.jobs.rules import JobStatus
from pulse_server.postgres.completed_days import PostgresCompletedDayRepo
from pulse_server.topics.rules import Kept
from pulse_server.upkeep.completed_days import DayKeeper

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

log = logging.getLogger(__name__)

_SQL = statements("transitions/retention.sql", "unique_periods.sql", "audit.sql", "worker_states.sql")
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


class Retention:
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
            *(days, publisher, kept[JobStatus.COMPLETED]), interval=interval, turn=turn, metrics=metrics
        )

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.janitor.loop, self.day_keeper.loop)

    async def prepare(self) -> None:
        """Make today's partition before the first job is completed. If this fails, the loop tries again."""
        with suppress(PulseError):
            await self.day_keeper.add_days()
