"""Cancels jobs that have not started within the time that they were submitted with."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.base.loops import Loop
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.rules import Cancellation
from pulse_server.jobs.store import PostgresJobRepo

CANCEL_BATCH = 1000
# No claim takes an expired job: the interval only decides how soon it is shown as canceled.
START_LIMIT_INTERVAL = timedelta(seconds=2)
NOT_STARTED = "not started in time, as start_within asks"


class StartLimits:
    def __init__(self, repo: PostgresJobRepo, publisher: Publisher) -> None:
        self._repo = repo
        self._publisher = publisher
        self.loop = Loop("start limits", self.tick, START_LIMIT_INTERVAL)

    async def tick(self) -> None:
        while True:
            canceled = await self._repo.cancel_unstarted(CANCEL_BATCH)
            if canceled:
                self._publisher.canceled([Cancellation(job, None) for job in canceled], NOT_STARTED)
            if len(canceled) < CANCEL_BATCH:
                return
