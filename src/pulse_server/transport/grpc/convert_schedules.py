"""Schedules, between messages and the domain. Requests are checked here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import TypeAlias, TypeVar

from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.errors import InvalidArgument
from pulse_server.domain.schedule_owners import as_declared
from pulse_server.domain.schedules import CatchUp, Cron, Every, Once, Overlap, Schedule, Timetable, Work
from pulse_server.domain.timetables import cron
from pulse_server.doors import boundary
from pulse_server.jobs.messages import read_metadata
from pulse_server.service.schedule_definitions import NO_LIMIT, Changes, Definition

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
