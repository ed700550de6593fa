"""The RPCs of schedules. Requests are checked here.

Callers of the original contract, which has neither limit nor page token, get whole lists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument, ResourceExhausted
from pulse_server.base.ids import Page, new_id, parse_id, parse_new_id
from pulse_server.base.loops import TURN_VIEWS, each_in_turns, in_turns
from pulse_server.doors import boundary
from pulse_server.doors.boundary import SERVICE
from pulse_server.doors.callers import Callers, may_call
from pulse_server.jobs import messages
from pulse_server.jobs.messages import read_metadata
from pulse_server.jobs.rules import Job, JobFilter
from pulse_server.schedules.rules import (
    CatchUp,
    Cron,
    Every,
    Once,
    Overlap,
    Schedule,
    Timetable,
    Work,
    as_declared,
    cron,
)
from pulse_server.schedules.service import MOST_DECLARED, NO_LIMIT, Changes, Declarer, Definition, Schedules
from pulse_server.topics.rpcs import UnservedNotes
from pulse_server.topics.service import TopicRules
from pulse_server.work.jobs import Jobs

# A list that is requested without a limit. A default gRPC client receives 4 MiB.
WHOLE_LIST_BYTES = 4 * 1024 * 1024 - 1024

Entry = TypeVar("Entry")
View = TypeVar("View", bound=Message)

# The number and the length before each entry of a repeated field.
_FRAME_BYTES = 6


async def whole_list(
    read_page: Callable[[str], Awaitable[Page[Entry]]], view: Callable[[Entry], View]
) -> list[View]:
    """Read all pages. Raises ResourceExhausted if they do not fit in one response.

    A caller that knows no page token would take a part of the list for the whole. Memory is bounded by one
    response and one page.
    """
    views: list[View] = []
    size, token = 0, ""
    while True:
        page = await read_page(token)
        async for some in in_turns(page.entries, TURN_VIEWS):
            found = [view(entry) for entry in some]
            views += found
            size += sum(one.ByteSize() + _FRAME_BYTES for one in found)
            if size > WHOLE_LIST_BYTES:
                raise ResourceExhausted(
                    "The list is longer than one answer can carry (4 MiB). "
                    "Set limit, and follow next_page_token."
                )
        if not page.next_token:
            return views
        token = page.next_token


_MILLISECOND = timedelta(milliseconds=1)

Choice = TypeVar("Choice", bound=StrEnum)
WithSpec: TypeAlias = pb.CreateScheduleRequest | pb.UpdateScheduleRequest | pb.PreviewScheduleRequest


def definition(request: pb.CreateScheduleRequest, default_attempts: int) -> Definition:
    """Return the requested schedule. Raises InvalidArgument, which names the field."""
    return Definition(
        name=bounds.check_name(request.name),
        timetable=timetable(request, request.time_zone),
        work=Work(
            topic=bounds.check_topic(request.topic),
            payload=bounds.check_payload(request.payload),
            priority=request.priority,
            max_attempts=bounds.check_max_attempts(request.max_attempts)
            if request.HasField("max_attempts")
            else default_attempts,
            attempts_by_policy=not request.HasField("max_attempts") or request.max_attempts_is_default,
            max_attempts_is_default=request.HasField("max_attempts") and request.max_attempts_is_default,
            metadata=read_metadata(request.metadata) or {},
            start_within=bounds.check_positive(_start_within(request), "start_within")
            if request.HasField("start_within")
            else None,
        ),
        catch_up=_one_of(CatchUp, request.catch_up, "catch_up") or CatchUp.ONE,
        refuse_past=request.strict,
        overlap=_one_of(Overlap, request.overlap, "overlap") or Overlap.ALLOW,
    )


def changes(request: pb.UpdateScheduleRequest) -> Changes:
    return Changes(
        timetable=timetable(request, request.time_zone) if request.WhichOneof("spec") else None,
        time_zone=request.time_zone or None,
        topic=bounds.check_topic(request.topic) if request.HasField("topic") else None,
        payload=bounds.check_payload(request.payload) if request.HasField("payload") else None,
        priority=request.priority if request.HasField("priority") else None,
        max_attempts=bounds.check_max_attempts(request.max_attempts)
        if request.HasField("max_attempts")
        else None,
        metadata=dict(read_metadata(request.metadata.entries) or {})
        if request.HasField("metadata")
        else None,
        catch_up=_one_of(CatchUp, request.catch_up, "catch_up") if request.HasField("catch_up") else None,
        start_within=_changed_start_within(request) if request.HasField("start_within") else None,
        overlap=_one_of(Overlap, request.overlap, "overlap") if request.HasField("overlap") else None,
        returned=tuple(request.returned),
    )


def timetable(request: WithSpec, time_zone: str) -> Timetable:
    spec = request.WhichOneof("spec")
    if time_zone and spec != "cron":
        raise InvalidArgument("time_zone", "belongs to cron: moments and intervals need none.")
    match spec:
        case "at":
            return Once(bounds.check_run_at(boundary.moment(request.at, "at"), "at"))
        case "every":
            # Rounded as it is stored, so that the same request gives the same definition.
            return Every(boundary.duration(request.every, "every") // _MILLISECOND * _MILLISECOND)
        case "cron":
            return cron(request.cron, time_zone)
    raise InvalidArgument("spec", "is missing: set one of at, every and cron.")


def schedule_view(
    schedule: Schedule, attempts_by_topic: Callable[[str, int], int], *, with_payload: bool = False
) -> pb.ScheduleView:
    work = schedule.work
    view = pb.ScheduleView(
        schedule_id=schedule.id,
        name=schedule.name or "",
        kind=schedule.kind,
        topic=schedule.work.topic,
        payload=schedule.work.payload if with_payload else b"",
        priority=schedule.work.priority,
        max_attempts=attempts_by_topic(work.topic, work.max_attempts)
        if work.attempts_by_policy
        else work.max_attempts,
        metadata=dict(schedule.work.metadata),
        catch_up=schedule.catch_up.value,
        paused=schedule.paused,
        next_run_at=boundary.timestamp(schedule.next_run_at),
        last_run_at=boundary.timestamp(schedule.last_run_at),
        created_at=boundary.timestamp(schedule.created_at),
        declared_by=schedule.application or "",
        vanished_at=boundary.timestamp(schedule.vanished_at),
        start_within=None if work.start_within is None else boundary.wire_duration(work.start_within),
        overlap=schedule.overlap.value,
        queued_for=boundary.timestamp(schedule.queued_for),
        declared=schedule.overrides is not None,
    )
    if schedule.overrides:
        for entry, override in schedule.overrides.items():
            set_at = boundary.timestamp(override.set_at)
            view.overrides.add(entry=entry, set_by=override.set_by, set_at=set_at)
        code = replace(as_declared(schedule), overrides=None)
        view.declares.CopyFrom(schedule_view(code, attempts_by_topic, with_payload=with_payload))
    match schedule.timetable:
        case Once(at):
            view.at.FromDatetime(at)
        case Every(interval):
            view.every.FromTimedelta(interval)
        case Cron(expression, time_zone):
            view.cron, view.time_zone = expression, time_zone
    return view


def _start_within(request: pb.CreateScheduleRequest | pb.UpdateScheduleRequest) -> timedelta:
    return boundary.duration(request.start_within, "start_within")


def _changed_start_within(request: pb.UpdateScheduleRequest) -> timedelta:
    if request.start_within == Duration():  # as sent: a nanosecond is zero as a timedelta, and refused
        return NO_LIMIT
    return bounds.check_positive(_start_within(request), "start_within")


def _one_of(kind: type[Choice], text: str, field: str) -> Choice | None:
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise InvalidArgument(field, f"{text[:40]!r} is not known; it is one of {', '.join(kind)}.") from None


JobListRequest: TypeAlias = pb.ListScheduleJobsRequest | pb.ListScheduleFiresRequest


class ScheduleRpcs:
    def __init__(
        self,
        schedules: Schedules,
        jobs: Jobs,
        rules: TopicRules,
        callers: Callers,
        unserved: UnservedNotes | None = None,
    ) -> None:
        """Without `unserved`, callers get no notes about topics without workers."""
        self._unserved = unserved
        self._schedules = schedules
        self._jobs = jobs
        self._rules = rules
        self._callers = callers

    def _view(self, schedule: Schedule, *, with_payload: bool = False) -> pb.ScheduleView:
        return schedule_view(schedule, self._rules.attempts_by_topic, with_payload=with_payload)

    async def create_schedule(
        self, request: pb.CreateScheduleRequest, context: Any
    ) -> pb.CreateScheduleResponse:
        schedule = await self._schedules.create(
            definition(request, self._rules.default_attempts),
            replace_existing=request.replace,
            declarer=self._declarer(context),
        )
        return pb.CreateScheduleResponse(
            schedule_id=schedule.id,
            schedule=self._view(schedule, with_payload=True),
            no_worker=[] if self._unserved is None else await self._unserved.of_new([request.topic], context),
        )

    async def declare_schedules(
        self, request: pb.DeclareSchedulesRequest, context: Any
    ) -> pb.DeclareSchedulesResponse:
        bounds.check_count("names", len(request.names), MOST_DECLARED)
        vanished = await self._schedules.declare(
            bounds.check_application(request.application),
            [bounds.check_name(name) or "" for name in request.names],
            self._declarer(context),
        )
        return pb.DeclareSchedulesResponse(vanished=vanished)

    def _declarer(self, context: Any) -> Declarer:
        caller = self._callers.of(context)
        # A role that may update any schedule may also replace it.
        return Declarer(caller.user or None, may_call(caller.role, f"/{SERVICE}/UpdateSchedule"))

    async def get_schedule(self, request: pb.GetScheduleRequest, _context: Any) -> pb.GetScheduleResponse:
        if request.name and not request.schedule_id:
            schedule = await self._schedules.find(bounds.check_name(request.name) or "")
        else:
            schedule = await self._schedules.get(_id(request))
        return pb.GetScheduleResponse(schedule=self._view(schedule, with_payload=True))

    async def list_schedules(
        self, request: pb.ListSchedulesRequest, _context: Any
    ) -> pb.ListSchedulesResponse:
        topic = bounds.check_topic(request.topic) if request.topic else ""
        if _wants_whole_list(request):
            everything = await whole_list(
                lambda token: self._schedules.page(limit=bounds.MAX_PAGE_SIZE, token=token, topic=topic),
                self._view,
            )
            return pb.ListSchedulesResponse(schedules=everything)
        page = await self._schedules.page(limit=_page_size(request), token=request.page_token, topic=topic)
        return pb.ListSchedulesResponse(
            schedules=await each_in_turns(self._view, page.entries),
            next_page_token=page.next_token,
        )

    async def update_schedule(
        self, request: pb.UpdateScheduleRequest, context: Any
    ) -> pb.UpdateScheduleResponse:
        user = self._callers.of(context).user
        schedule = await self._schedules.update(_id(request), changes(request), user)
        return pb.UpdateScheduleResponse(schedule=self._view(schedule, with_payload=True))

    async def pause_schedule(
        self, request: pb.PauseScheduleRequest, _context: Any
    ) -> pb.PauseScheduleResponse:
        await self._schedules.pause(_id(request))
        return pb.PauseScheduleResponse()

    async def resume_schedule(
        self, request: pb.ResumeScheduleRequest, _context: Any
    ) -> pb.ResumeScheduleResponse:
        await self._schedules.resume(_id(request))
        return pb.ResumeScheduleResponse()

    async def delete_schedule(
        self, request: pb.DeleteScheduleRequest, _context: Any
    ) -> pb.DeleteScheduleResponse:
        await self._schedules.delete(_id(request))
        return pb.DeleteScheduleResponse()

    async def fire_schedule(self, request: pb.FireScheduleRequest, _context: Any) -> pb.FireScheduleResponse:
        job_id = parse_new_id(request.job_id) if request.job_id else new_id()
        return pb.FireScheduleResponse(job_id=await self._schedules.fire(_id(request), job_id))

    async def preview_schedule(
        self, request: pb.PreviewScheduleRequest, _context: Any
    ) -> pb.PreviewScheduleResponse:
        fires = await self._schedules.preview(
            timetable(request, request.time_zone), bounds.check_preview_count(request.count)
        )
        return pb.PreviewScheduleResponse(fires=[boundary.exact_timestamp(fire) for fire in fires])

    async def get_scheduler_status(
        self, _request: pb.GetSchedulerStatusRequest, _context: Any
    ) -> pb.GetSchedulerStatusResponse:
        status = await self._schedules.status()
        return pb.GetSchedulerStatusResponse(
            active=status.active,
            paused=status.paused,
            next_run_at=boundary.timestamp(status.next_run_at),
            late_seconds=status.late.total_seconds(),
        )

    async def list_schedule_jobs(
        self, request: pb.ListScheduleJobsRequest, _context: Any
    ) -> pb.ListScheduleJobsResponse:
        if _wants_whole_list(request):
            return pb.ListScheduleJobsResponse(jobs=await self._all_jobs(request, messages.job_view))
        page = await self._page_of_jobs(request, request.page_token)
        return pb.ListScheduleJobsResponse(
            jobs=await each_in_turns(messages.job_view, page.entries), next_page_token=page.next_token
        )

    async def list_schedule_fires(
        self, request: pb.ListScheduleFiresRequest, _context: Any
    ) -> pb.ListScheduleFiresResponse:
        if _wants_whole_list(request):
            return pb.ListScheduleFiresResponse(fires=await self._all_jobs(request, _fire_view))
        page = await self._page_of_jobs(request, request.page_token)
        return pb.ListScheduleFiresResponse(
            fires=await each_in_turns(_fire_view, page.entries), next_page_token=page.next_token
        )

    async def _all_jobs(self, request: JobListRequest, view: Callable[[Job], View]) -> list[View]:
        return await whole_list(lambda token: self._page_of_jobs(request, token), view)

    async def _page_of_jobs(self, request: JobListRequest, token: str) -> Page[Job]:
        """Return the jobs of the schedule, newest first. They outlive it."""
        return await self._jobs.list(
            JobFilter(schedule_id=_id(request)), limit=_page_size(request), offset=0, token=token
        )


def _fire_view(job: Job) -> pb.ScheduleFire:
    return pb.ScheduleFire(
        job_id=job.id, fired_at=boundary.timestamp(job.submitted_at), status=job.status.value
    )


def _id(request: Any) -> str:
    return parse_id(request.schedule_id, "schedule_id")


def _wants_whole_list(request: JobListRequest | pb.ListSchedulesRequest) -> bool:
    # A caller of the original contract sends neither limit nor page token.
    return not request.limit and not request.page_token


def _page_size(request: JobListRequest | pb.ListSchedulesRequest) -> int:
    return bounds.check_page_size(request.limit, default=bounds.MAX_PAGE_SIZE)
