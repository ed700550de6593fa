"""Fires due schedules."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from pulse_server.base.loops import Loop, lease_clock
from pulse_server.dispatch.publisher import Publisher
from pulse_server.domain.schedules import Fire, Schedule, fire_id
from pulse_server.domain.timetables import plan
from pulse_server.jobs.reports import Fired
from pulse_server.postgres.schedules import PostgresScheduleRepo

# A fire is late by up to this. An interval below it is followed at its own pace once its first fire was made.
SCHEDULE_INTERVAL = timedelta(seconds=1)
# Due schedules per statement; a backlog larger than that goes on at once.
SCHEDULE_BATCH = 100
# How long an occurrence of a full batch is left alone if it could not be fired: its schedule cannot be read,
# or another session has locked it. The others go on.
NOT_FIRED_REST = timedelta(seconds=2)

Occurrence: TypeAlias = tuple[str, datetime]
"""The id of a schedule, and the moment."""

log = logging.getLogger(__name__)


class Scheduler:
    """Plans a step for each due schedule; the database takes it. Any number of schedulers may run at once: a
    step is guarded by the cursor that it starts from, so a second scheduler changes nothing."""

    def __init__(self, repo: PostgresScheduleRepo, publisher: Publisher, *, interval: timedelta) -> None:
        self._repo = repo
        self._publisher = publisher
        # The occurrences that could not be fired, and when each is tried again.
        self._resting: dict[Occurrence, float] = {}
        self._interval = interval
        self._look_again_in: timedelta | None = None
        self.loop = Loop("scheduler", self.tick, interval)

    async def tick(self) -> timedelta | None:
        now_here = lease_clock()
        self._resting = {one: until for one, until in self._resting.items() if until > now_here}
        await self._fire_queued()
        limit = self._limit
        found = await self._repo.due_schedules(limit)
        due = [schedule for schedule in found if (schedule.id, schedule.next_run_at) not in self._resting]
        if not due:
            # This tick was slightly too early: look once more before the next interval.
            pause, self._look_again_in = self._look_again_in, None
            return pause
        is_full = len(found) == limit or len(due) > SCHEDULE_BATCH
        del due[SCHEDULE_BATCH:]
        now = await self._repo.database_now()
        fires = [fire for schedule in due if (fire := _plan(schedule, now))]
        done = await self._repo.fire_schedules(fires) if fires else []
        self._published(done, now)
        tried = [(schedule.id, schedule.next_run_at) for schedule in due]
        moved = self._moved(done, of=tried if is_full else ())
        following = [fire.next_run_at for fire in fires if (fire.schedule_id, fire.occurrence) in moved]
        # No spin: what did not move rests.
        pause = self._pause(following, now, is_full)
        self._look_again_in = pause or None
        return pause

    async def _fire_queued(self) -> None:
        """Fire the occurrences that waited for a job of their schedule to finish."""
        limit = self._limit
        found = await self._repo.queued_schedules(limit)
        kept = [(schedule.id, schedule.queued_for) for schedule in found if schedule.queued_for is not None]
        tried = [one for one in kept if one not in self._resting]
        if not tried:
            return
        is_full = len(found) == limit or len(tried) > SCHEDULE_BATCH
        del tried[SCHEDULE_BATCH:]
        now = await self._repo.database_now()
        fires = [Fire(one, occurrence, None, fire_id(one, occurrence)) for one, occurrence in tried]
        done = await self._repo.fire_queued(fires)
        self._published(done, now)
        self._moved(done, of=tried if is_full else ())

    @property
    def _limit(self) -> int:
        # More than the resting ones: a hundred of them, which are due longest, hide no other.
        return SCHEDULE_BATCH + len(self._resting)

    def _moved(self, done: Sequence[Fired], of: Iterable[Occurrence]) -> set[Occurrence]:
        """Return the occurrences that were fired or skipped. Leave the others of these alone for a while."""
        moved = {(fired.schedule_id, fired.occurrence) for fired in done}
        until = lease_clock() + NOT_FIRED_REST.total_seconds()
        self._resting |= {one: until for one in of if one not in moved}
        return moved

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
