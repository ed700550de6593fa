"""The verbs that make schedules, blocking; `p.schedules` has those that manage them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.blocking.bridge import Bridge
from pulse.blocking.schedules import SyncSchedules
from pulse.client.scheduling import Scheduling
from pulse.models.schedules import CatchUp, ScheduleInfo
from pulse.models.specs import Spec

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


class SyncScheduling:
    """What a `SyncPulse` can do to make schedules."""

    _pulse: Scheduling
    _bridge: Bridge

    @property
    def schedules(self) -> SyncSchedules:
        """The verbs for schedules that are there: list them, retune them, pause, fire and delete them."""
        return SyncSchedules(self._bridge, self._pulse.schedules)

    def schedule(
        self,
        topic: str,
        args: object,
        spec: Spec,
        *,
        name: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        catch_up: CatchUp = "one",
        replace: bool = False,
        strict: bool = False,
        timeout: timedelta | None = None,
    ) -> ScheduleInfo:
        """Store a schedule that enqueues a job whenever `spec` says. See `Pulse.schedule`."""
        return self._bridge.call(
            self._pulse.schedule,
            topic,
            args,
            spec,
            name=name,
            priority=priority,
            max_attempts=max_attempts,
            metadata=metadata,
            catch_up=catch_up,
            replace=replace,
            strict=strict,
            timeout=timeout,
        )

    def every(
        self,
        topic: str,
        interval: timedelta,
        args: object = None,
        *,
        name: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        catch_up: CatchUp = "one",
    ) -> None:
        """Declare that a job is enqueued on the topic at every interval. Sends nothing yet.

        `run()` makes sure of the schedule when it starts, and so does `p.declare()`. See `Pulse.every`.
        """
        self._pulse.every(
            topic,
            interval,
            args,
            name=name,
            priority=priority,
            max_attempts=max_attempts,
            metadata=metadata,
            catch_up=catch_up,
        )

    def cron(
        self,
        topic: str,
        expression: str,
        args: object = None,
        *,
        tz: str | ZoneInfo = "UTC",
        name: str | None = None,
        priority: int = 0,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        catch_up: CatchUp = "one",
    ) -> None:
        """Declare that a job is enqueued on the topic whenever the cron expression says, as `every` does."""
        self._pulse.cron(
            topic,
            expression,
            args,
            tz=tz,
            name=name,
            priority=priority,
            max_attempts=max_attempts,
            metadata=metadata,
            catch_up=catch_up,
        )

    def declare(self, *, timeout: timedelta | None = None) -> list[ScheduleInfo]:
        """Make sure of every declared schedule, and return them. `timeout` bounds each of them."""
        return self._bridge.call(self._pulse.declare, timeout=timeout)
