"""`p.schedules`: the verbs for stored schedules."""

from __future__ import annotations

import builtins
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pulse import payload as payloads
from pulse import tuning
from pulse.client.schedule_definitions import check_overlap, require_overlap
from pulse.errors import InvalidArgument, NotFound
from pulse.ids import uuid7
from pulse.jobs.caller import Caller
from pulse.jobs.handles import JobHandle
from pulse.jobs.models import Page, job_page
from pulse.jobs.selections import not_empty
from pulse.messages import check_duration, message
from pulse.models.schedules import (
    CatchUp,
    FirePage,
    Overlap,
    ScheduleInfo,
    SchedulePage,
    SchedulerStatus,
    fire_page,
    schedule_info,
    schedule_page,
    scheduler_status,
)
from pulse.models.specs import Cron, Spec, spec_fields, zone_name
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_ID = r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
PREVIEWED = 5
_LARGEST_PAGE = 1_000


class _Unchanged:
    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = _Unchanged()
"""The default of `update`'s `args`: None is a value there."""


class Schedules:
    """Manages schedules. Each is given by its id, by its name, or as a ScheduleInfo.

    A string in the form of a UUID is an id. A name costs one more call, to look up the id.
    """

    def __init__(self, caller: Caller, handle: Callable[[str, str], JobHandle]) -> None:
        """`handle` makes the handle of a job from its id and topic."""
        self._caller = caller
        self._handle = handle

    async def get(self, schedule: str | ScheduleInfo, *, timeout: timedelta | None = None) -> ScheduleInfo:
        """Return a schedule with its arguments. Raises NotFound."""
        request = message(pb.GetScheduleRequest, **_reference(schedule))
        response = await self._caller.call(lambda stub: stub.GetSchedule, request, timeout)
        return schedule_info(response.schedule)

    async def list(
        self,
        *,
        topic: str | None = None,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> SchedulePage:
        """Return one page of schedules, oldest first, without their arguments.

        `topic` selects schedules whose jobs have this topic.
        """
        request = message(
            pb.ListSchedulesRequest, topic=not_empty("topic", topic), limit=limit, page_token=cursor
        )
        response = await self._caller.call(lambda stub: stub.ListSchedules, request, timeout)
        return schedule_page(response)

    async def iter(
        self, *, page_size: int = tuning.PAGE_SIZE, timeout: timedelta | None = None
    ) -> AsyncIterator[ScheduleInfo]:
        """Yield all schedules, oldest first, page by page. `timeout` bounds each page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=page_size, cursor=cursor, timeout=timeout)
            for schedule in page:
                yield schedule
            cursor = page.next_cursor
            if cursor is None:
                return

    async def update(
        self,
        schedule: str | ScheduleInfo,
        *,
        spec: Spec | None = None,
        tz: str | ZoneInfo | None = None,
        args: object = UNCHANGED,
        topic: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        metadata: Mapping[str, str] | None = None,
        catch_up: CatchUp | None = None,
        start_within: timedelta | None = None,
        overlap: Overlap | None = None,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> ScheduleInfo:
        """Change the given fields. Only future occurrences are affected.

        The kind cannot change: an interval cannot become a cron. A new spec counts from now. A `Cron` without
        a zone keeps the zone of the schedule; `tz` alone moves its expression to another zone. A
        `start_within` of zero removes the limit.

        If code declares the schedule, what is set here stays until `reset`, whatever code declares.
        """
        timetable = {} if spec is None else spec_fields(spec)
        if isinstance(spec, Cron) and not spec.names_zone:
            del timetable["time_zone"]
        if tz is not None:
            if "time_zone" in timetable:
                raise InvalidArgument("The spec names a time zone, and so does tz: name it once.")
            timetable["time_zone"] = zone_name(tz)
        if start_within is not None:
            check_duration("start_within", start_within, may_be_zero=True)
        if overlap is not None:
            check_overlap(overlap)
        request = message(
            pb.UpdateScheduleRequest,
            schedule_id=await self._id_of(schedule, timeout),
            payload=None if args is UNCHANGED else payloads.encode(args),
            topic=topic,
            priority=priority,
            max_attempts=max_attempts,
            metadata=None if metadata is None else message(pb.Metadata, entries=metadata),
            catch_up=catch_up,
            start_within=start_within,
            overlap=overlap,
            reason=reason,
            **timetable,
        )
        response = await self._caller.call(lambda stub: stub.UpdateSchedule, request, timeout)
        require_overlap(response.schedule, request.overlap)
        return schedule_info(response.schedule)

    async def reset(
        self,
        schedule: str | ScheduleInfo,
        *entries: str,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> ScheduleInfo:
        """Hand entries back to the code that declares the schedule. Returns it with what the code declares.

        The names of the entries are those of `ScheduleOverride`. Without any, all entries that
        operators have set are handed back.
        """
        known = await self.get(schedule, timeout=timeout)
        names = entries or [override.entry for override in known.overrides]
        if not names:
            return known
        request = message(pb.UpdateScheduleRequest, schedule_id=known.id, returned=names, reason=reason)
        response = await self._caller.call(lambda stub: stub.UpdateSchedule, request, timeout)
        return schedule_info(response.schedule)

    async def pause(
        self, schedule: str | ScheduleInfo, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Pause the schedule until `resume`."""
        schedule_id = await self._id_of(schedule, timeout)
        request = message(pb.PauseScheduleRequest, schedule_id=schedule_id, reason=reason)
        await self._caller.call(lambda stub: stub.PauseSchedule, request, timeout)

    async def resume(
        self, schedule: str | ScheduleInfo, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Resume the schedule with its next occurrence.

        Occurrences that it missed while paused are skipped. A schedule that fires once fires now.
        """
        schedule_id = await self._id_of(schedule, timeout)
        request = message(pb.ResumeScheduleRequest, schedule_id=schedule_id, reason=reason)
        await self._caller.call(lambda stub: stub.ResumeSchedule, request, timeout)

    async def delete(
        self, schedule: str | ScheduleInfo, *, reason: str = "", timeout: timedelta | None = None
    ) -> None:
        """Delete the schedule. Its jobs stay; `jobs` and `fires` still list them by its id.

        Code that declares it makes it again when its next worker starts: `pause` lasts.
        """
        schedule_id = await self._id_of(schedule, timeout)
        request = message(pb.DeleteScheduleRequest, schedule_id=schedule_id, reason=reason)
        await self._caller.call(lambda stub: stub.DeleteSchedule, request, timeout, repeatable=False)

    async def vanished(
        self, declared_by: str | None = None, *, timeout: timedelta | None = None
    ) -> builtins.list[ScheduleInfo]:
        """Return the schedules that an application once declared in code, and no longer declares.

        Without `declared_by`, returns schedules of all applications. `timeout` bounds each call to
        the server.
        """
        return [
            schedule
            async for schedule in self.iter(page_size=_LARGEST_PAGE, timeout=timeout)
            if schedule.vanished_at is not None and declared_by in (None, schedule.declared_by)
        ]

    async def prune(
        self, declared_by: str, *, reason: str = "", timeout: timedelta | None = None
    ) -> builtins.list[ScheduleInfo]:
        """Delete the schedules that `vanished` returns for the application, and return them.

        Skips a schedule that was just declared again or deleted. `timeout` bounds each call to the
        server.
        """
        pruned = []
        for schedule in await self.vanished(declared_by, timeout=timeout):
            with contextlib.suppress(NotFound):
                if (await self.get(schedule, timeout=timeout)).vanished_at is None:
                    continue
                await self.delete(schedule, reason=reason, timeout=timeout)
                pruned.append(schedule)
        return pruned

    async def fire(
        self, schedule: str | ScheduleInfo, *, reason: str = "", timeout: timedelta | None = None
    ) -> JobHandle:
        """Enqueue the schedule's job now. Its next occurrence does not change.

        If an answer is lost, the call is repeated; the job is stored once.
        """
        known = await self.get(schedule, timeout=timeout)
        request = message(pb.FireScheduleRequest, schedule_id=known.id, job_id=uuid7(), reason=reason)
        response = await self._caller.call(lambda stub: stub.FireSchedule, request, timeout)
        return self._handle(response.job_id, known.topic)

    async def preview(
        self, spec: Spec, count: int = PREVIEWED, *, timeout: timedelta | None = None
    ) -> builtins.list[datetime]:
        """Return the next fire times of a schedule created now, in UTC. Stores nothing."""
        request = message(pb.PreviewScheduleRequest, count=count, **spec_fields(spec))
        response = await self._caller.call(lambda stub: stub.PreviewSchedule, request, timeout)
        return [fire.ToDatetime(tzinfo=UTC) for fire in response.fires]

    async def status(self, *, timeout: timedelta | None = None) -> SchedulerStatus:
        """Return the number of schedules, the next one to fire, and whether they fire on time."""
        request = pb.GetSchedulerStatusRequest()
        return scheduler_status(
            await self._caller.call(lambda stub: stub.GetSchedulerStatus, request, timeout)
        )

    # ------------------------------------------------------------ history

    async def jobs(
        self,
        schedule: str | ScheduleInfo,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> Page:
        """Return one page of the schedule's jobs, newest first. A deleted schedule is given by its id."""
        schedule_id = await self._id_of(schedule, timeout)
        request = message(pb.ListScheduleJobsRequest, schedule_id=schedule_id, limit=limit, page_token=cursor)
        response = await self._caller.call(lambda stub: stub.ListScheduleJobs, request, timeout)
        return job_page(response)

    async def fires(
        self,
        schedule: str | ScheduleInfo,
        *,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> FirePage:
        """Return one page of the schedule's fires, newest first."""
        schedule_id = await self._id_of(schedule, timeout)
        request = message(
            pb.ListScheduleFiresRequest, schedule_id=schedule_id, limit=limit, page_token=cursor
        )
        response = await self._caller.call(lambda stub: stub.ListScheduleFires, request, timeout)
        return fire_page(response)

    async def _id_of(self, schedule: str | ScheduleInfo, timeout: timedelta | None) -> str:
        known = _reference(schedule).get("schedule_id")
        return known or (await self.get(schedule, timeout=timeout)).id


def _reference(schedule: str | ScheduleInfo) -> dict[str, str]:
    """Return the field of the request that identifies the schedule."""
    if isinstance(schedule, ScheduleInfo):
        return {"schedule_id": schedule.id}
    if not isinstance(schedule, str) or not schedule:
        raise InvalidArgument(f"Give the id or the name of a schedule, or a ScheduleInfo, not {schedule!r}.")
    return {"schedule_id" if re.fullmatch(_ID, schedule) else "name": schedule}
