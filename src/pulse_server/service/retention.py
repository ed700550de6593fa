"""Retention: finished jobs are deleted row by row, and completed ones by the day."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.errors import PulseError
from pulse_server.domain.policies import Kept
from pulse_server.domain.status import JobStatus
from pulse_server.loops import Loop
from pulse_server.repos.completed_days import CompletedDayRepo
from pulse_server.repos.retention import RetentionRepo
from pulse_server.service.completed_days import DayKeeper
from pulse_server.service.janitor import Janitor
from pulse_server.telemetry.metrics import Metrics

# Between two passes, and with it how long a job may be kept beyond its time.
RETENTION_INTERVAL = timedelta(minutes=5)


class Retention:
    """The janitor and the keeper of the days. They take turns, and use one connection between them."""

    def __init__(
        self,
        jobs: RetentionRepo,
        days: CompletedDayRepo,
        publisher: Publisher,
        kept: Mapping[JobStatus, Kept],
        *,
        interval: timedelta = RETENTION_INTERVAL,
        metrics: Metrics | None = None,
    ) -> None:
        self.kept = kept
        turn = asyncio.Lock()
        self.janitor = Janitor(jobs, publisher, kept, interval=interval, turn=turn)
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
