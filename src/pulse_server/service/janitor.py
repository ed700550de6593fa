"""Deletes finished jobs that have been kept long enough, a few at a time, and throttled keys. ADR-0021"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta

from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.jobs import PageKey
from pulse_server.domain.policies import Kept
from pulse_server.domain.status import JobStatus
from pulse_server.loops import Loop
from pulse_server.repos.retention import RetentionRepo

# Rows looked at per statement, deleted or not: 20 ms of work if all of them go, 4 ms if none.
RETENTION_BATCH = 1000
# A pass continues where the last one ended. When the walk starts over, it finds the jobs that were
# unfinished or too young before.
RETENTION_START_OVER = timedelta(hours=1)
# The share of one connection's time, however much there is to delete: 14,000 jobs/s at 18 ms a
# batch, as many as one server completes. And the shortest pause between two statements.
RETENTION_SHARE = 0.25
RETENTION_PAUSE = timedelta(milliseconds=50)

log = logging.getLogger(__name__)


class Janitor:
    """Walks the jobs in the order of their submission, one statement per tick, and rests in between.

    A pass goes from where the last one ended to where the jobs are too young, and every so often from the
    beginning: a job may have been passed while it was still alive. Where it stands is kept in memory only; a
    server that starts begins at the beginning.
    """

    def __init__(
        self,
        repo: RetentionRepo,
        publisher: Publisher,
        kept: Mapping[JobStatus, Kept],
        *,
        interval: timedelta,
        turn: asyncio.Lock | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`turn` is shared with the keeper of the days: the two never use two connections."""
        self._turn = turn or asyncio.Lock()
        self._repo = repo
        self._kept = kept
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
            sweep = await self._repo.delete_expired(self._kept, after=self._reached, limit=RETENTION_BATCH)
            is_over = sweep.is_taken or sweep.looked_at < RETENTION_BATCH
            if is_over:
                await self._forget_periods()
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
            forgotten = await self._repo.forget_periods(RETENTION_BATCH)

    def _end_pass(self) -> None:
        if self._deleted:
            log.info("jobs_deleted", extra=dict(self._deleted))
            self._deleted.clear()
        now = self._clock()
        if now - self._started_over >= RETENTION_START_OVER.total_seconds():
            self._started_over = now
            self._reached = None
