"""Fires due schedules."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.schedules import Fire, Fired, Schedule, fire_id
from pulse_server.domain.timetables import plan
from pulse_server.loops import Loop
from pulse_server.repos.schedules import ScheduleRepo

# A fire is late by up to this. An interval below it is followed at its own pace once its first fire was made.
SCHEDULE_INTERVAL = timedelta(seconds=1)
# Due schedules per statement; a backlog larger than that goes on at once.
SCHEDULE_BATCH = 100

log = logging.getLogger(__name__)


class Scheduler:
    """Plans a step for each due schedule; the database takes it. Any number of schedulers may run at once: a
    step is guarded by the cursor that it starts from, so a second scheduler changes nothing."""

    def __init__(self, repo: ScheduleRepo, publisher: Publisher, *, interval: timedelta) -> None:
        self._repo = repo
        self._publisher = publisher
        self._unreadable = 0
        self._interval = interval
        self._look_again_in: timedelta | None = None
        self.loop = Loop("scheduler", self.tick, interval)

    async def tick(self) -> timedelta | None:
        await self._fire_queued()
        # Schedules that were unreadable at the last tick are due longest: they must not fill the
        # batch.
        limit = SCHEDULE_BATCH + self._unreadable
        due = await self._repo.due_schedules(limit)
        if not due:
            self._unreadable = 0
            # This tick was slightly too early: look once more before the next interval.
            pause, self._look_again_in = self._look_again_in, None
            return pause
        now = await self._repo.database_now()
        fires = [fire for schedule in due if (fire := _plan(schedule, now))]
        self._unreadable = len(due) - len(fires)
        done = await self._repo.fire_schedules(fires) if fires else []
        self._published(done, now)
        # Unless nothing moved: that would spin, or another server fires these.
        pause = self._pause([fire.next_run_at for fire in fires], now, len(due) == limit) if done else None
        self._look_again_in = pause or None
        return pause

    async def _fire_queued(self) -> None:
        """Fire the occurrences that waited for a job of their schedule to finish."""
        queued = await self._repo.queued_schedules(SCHEDULE_BATCH)
        if not queued:
            return
        now = await self._repo.database_now()
        fires = [
            Fire(schedule.id, schedule.queued_for, None, fire_id(schedule.id, schedule.queued_for))
            for schedule in queued
            if schedule.queued_for is not None
        ]
        self._published(await self._repo.fire_queued(fires), now)

    def _published(self, done: Sequence[Fired], now: datetime) -> None:
        """Publish and log the steps that were taken."""
        self._publisher.fired(done, now)
        for fired in done:
            if fired.is_held:
                log.info(
                    "fire_held",
                    extra={"schedule_id": fired.schedule_id, "occurrence": fired.occurrence.isoformat()},
                )
            if fired.taken_id:
                log.warning(
                    "fire_id_taken",
                    extra={
                        "schedule_id": fired.schedule_id,
                        "taken_id": fired.taken_id,
                        "job_id": fired.job_id,
                    },
                )
            if fired.job_id:
                log.info(
                    "schedule_fired",
                    extra={
                        "schedule_id": fired.schedule_id,
                        "job_id": fired.job_id,
                        "topic": fired.topic,
                        "late_seconds": round((now - fired.occurrence).total_seconds(), 3),
                    },
                )

    def _pause(
        self, following: Sequence[datetime | None], now: datetime, is_full_batch: bool
    ) -> timedelta | None:
        """Return how long to sleep: not at all if more is due, less than a tick before a short interval."""
        soonest = min((moment for moment in following if moment is not None), default=None)
        if is_full_batch or (soonest is not None and soonest <= now):
            return timedelta(0)
        if soonest is None or soonest - now >= self._interval:
            return None
        return soonest - now


def _plan(schedule: Schedule, now: datetime) -> Fire | None:
    """Return the step to take. None: the schedule cannot be read, and must not stop others."""
    try:
        return plan(schedule, now)
    except Exception:
        log.exception("schedule_skipped", extra={"schedule_id": schedule.id, "topic": schedule.work.topic})
        return None
