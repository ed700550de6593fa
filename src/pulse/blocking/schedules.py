"""`p.schedules` of a `SyncPulse`: the verbs for schedules that are there, blocking."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from pulse import tuning
from pulse.blocking.bridge import Bridge
from pulse.client.schedules import PREVIEWED, UNCHANGED, Schedules
from pulse.job_handle import JobHandle
from pulse.models.jobs import Page
from pulse.models.schedules import CatchUp, FirePage, ScheduleInfo, SchedulePage, SchedulerStatus
from pulse.models.specs import Spec


class SyncSchedules:
    """Manages schedules. Each is given by its id, by its name, or as a ScheduleInfo.

    What looks like a UUID is taken for an id. A name costs one call more, to learn the id.
    """

    def __init__(self, bridge: Bridge, schedules: Schedules) -> None:
        self._bridge = bridge
        self._schedules = schedules

    def get(self, schedule: str | ScheduleInfo, *, timeout: timedelta | None = None) -> ScheduleInfo:
        """Return everything about a schedule, its arguments included. Raises NotFound."""
        return self._bridge.call(self._schedules.get, schedule, timeout=timeout)

    def list(
        self,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> SchedulePage:
        """Return one page of schedules, oldest first, without their arguments."""
        return self._bridge.call(self._schedules.list, limit=limit, cursor=cursor, timeout=timeout)

    def iter(
        self, *, page_size: int = tuning.PAGE_SIZE, timeout: timedelta | None = None
    ) -> Iterator[ScheduleInfo]:
        """Yield all schedules, oldest first, page by page. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = self.list(limit=page_size, cursor=cursor, timeout=timeout)
            yield from page
            cursor = page.next_cursor
            if cursor is None:
                return

    def update(
        self,
        schedule: str | ScheduleInfo,
        *,
        spec: Spec | None = None,
        args: object = UNCHANGED,
        topic: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        catch_up: CatchUp | None = None,
        timeout: timedelta | None = None,
    ) -> ScheduleInfo:
        """Change what is given and leave the rest. See `Schedules.update`."""
        return self._bridge.call(
            self._schedules.update,
            schedule,
            spec=spec,
            args=args,
            topic=topic,
            priority=priority,
            max_attempts=max_attempts,
            metadata=metadata,
            catch_up=catch_up,
            timeout=timeout,
        )

    def pause(self, schedule: str | ScheduleInfo, *, timeout: timedelta | None = None) -> None:
        """Let the schedule fire no more, until it is resumed."""
        self._bridge.call(self._schedules.pause, schedule, timeout=timeout)

    def resume(self, schedule: str | ScheduleInfo, *, timeout: timedelta | None = None) -> None:
        """Let the schedule go on with its next occurrence. See `Schedules.resume`."""
        self._bridge.call(self._schedules.resume, schedule, timeout=timeout)

    def delete(self, schedule: str | ScheduleInfo, *, timeout: timedelta | None = None) -> None:
        """Remove the schedule. Its jobs stay, and `jobs` and `fires` still list them by its id."""
        self._bridge.call(self._schedules.delete, schedule, timeout=timeout)

    def fire(self, schedule: str | ScheduleInfo, *, timeout: timedelta | None = None) -> JobHandle:
        """Enqueue the schedule's job now, beside its timetable, which goes on as before."""
        return self._bridge.call(self._schedules.fire, schedule, timeout=timeout)

    def preview(
        self, spec: Spec, count: int = PREVIEWED, *, timeout: timedelta | None = None
    ) -> builtins.list[datetime]:
        """Return when a schedule made now would fire next, in UTC. Nothing is stored."""
        return self._bridge.call(self._schedules.preview, spec, count, timeout=timeout)

    def status(self, *, timeout: timedelta | None = None) -> SchedulerStatus:
        """Return how many schedules there are, which fires next, and whether they fire in time."""
        return self._bridge.call(self._schedules.status, timeout=timeout)

    # ------------------------------------------------------------ what it has done

    def jobs(
        self,
        schedule: str | ScheduleInfo,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> Page:
        """Return one page of the jobs that the schedule made, newest first. They outlive it, by its id."""
        return self._bridge.call(self._schedules.jobs, schedule, limit=limit, cursor=cursor, timeout=timeout)

    def fires(
        self,
        schedule: str | ScheduleInfo,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> FirePage:
        """Return one page of the times at which the schedule fired, newest first."""
        return self._bridge.call(self._schedules.fires, schedule, limit=limit, cursor=cursor, timeout=timeout)
