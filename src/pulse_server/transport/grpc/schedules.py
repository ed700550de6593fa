"""The RPCs of schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.ids import Page, new_id, parse_id, parse_new_id
from pulse_server.base.loops import each_in_turns
from pulse_server.domain.schedules import Schedule
from pulse_server.doors import boundary
from pulse_server.doors.boundary import SERVICE
from pulse_server.doors.callers import Callers, may_call
from pulse_server.jobs import messages
from pulse_server.jobs.rules import Job, JobFilter
from pulse_server.service.schedules import MOST_DECLARED, Declarer, Schedules
from pulse_server.topics.rpcs import UnservedNotes
from pulse_server.topics.service import TopicRules
from pulse_server.transport.grpc import convert_schedules
from pulse_server.transport.grpc.whole_lists import View, whole_list
from pulse_server.work.jobs import Jobs

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
        return convert_schedules.schedule_view(
            schedule, self._rules.attempts_by_topic, with_payload=with_payload
        )

    async def create_schedule(
        self, request: pb.CreateScheduleRequest, context: Any
    ) -> pb.CreateScheduleResponse:
        schedule = await self._schedules.create(
            convert_schedules.definition(request, self._rules.default_attempts),
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
        schedule = await self._schedules.update(_id(request), convert_schedules.changes(request), user)
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
            convert_schedules.timetable(request, request.time_zone), bounds.check_preview_count(request.count)
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
