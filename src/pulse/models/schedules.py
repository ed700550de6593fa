"""Schedules and their fires as the verbs return them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from pulse.models.jobs import JobStatus
from pulse.models.specs import At, Cron, Every, spec_of
from pulse.models.times import time_of
from pulse.payload import decode_json

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb

CatchUp: TypeAlias = Literal["one", "skip", "all"]
"""The policy for occurrences that were missed while no pulsed ran: one late fire for all of them, none, or
one for each up to a limit."""

Overlap: TypeAlias = Literal["allow", "skip", "queue"]
"""The policy for an occurrence while a job of the schedule is unfinished: another job, none, or one that
waits until that job has finished."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule. All times are aware and in UTC."""

    id: str
    name: str | None
    topic: str
    kind: str
    """once, interval or cron."""
    spec: At | Every | Cron
    next_run_at: datetime | None
    """The next occurrence. Unchanged while the schedule is paused."""
    last_run_at: datetime | None
    paused: bool
    priority: int
    max_attempts: int
    """The maximum for its next job: its own number, or else the topic's."""
    metadata: Mapping[str, str]
    payload: bytes
    """The payload of each job, as stored bytes. Empty in lists, which leave it out."""
    catch_up: CatchUp
    created_at: datetime | None
    declared_by: str | None = None
    """The application whose code declares it. None: it was created otherwise."""
    vanished_at: datetime | None = None
    """Since then the code of `declared_by` declares it no longer. It still fires."""
    start_within: timedelta | None = None
    """A job that has not started this long after its occurrence is canceled. None: no limit."""
    overlap: Overlap = "allow"
    queued_for: datetime | None = None
    """The occurrence that waits for an unfinished job of the schedule. None: none does."""

    @property
    def args(self) -> Any:
        """The payload decoded as JSON, or None if it is empty."""
        return decode_json(self.payload)


@dataclass(frozen=True, slots=True)
class ScheduleFire:
    """One fire of a schedule, with its job."""

    job_id: str
    fired_at: datetime | None
    status: JobStatus
    """The current status of the job."""


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """One page of schedules, oldest first."""

    schedules: tuple[ScheduleInfo, ...]
    next_cursor: str | None
    """Pass it to the next `schedules.list`. None on the last page."""

    def __iter__(self) -> Iterator[ScheduleInfo]:
        return iter(self.schedules)

    def __len__(self) -> int:
        return len(self.schedules)


@dataclass(frozen=True, slots=True)
class FirePage:
    """One page of the fires of a schedule, newest first."""

    fires: tuple[ScheduleFire, ...]
    next_cursor: str | None
    """Pass it to the next `schedules.fires`. None on the last page."""

    def __iter__(self) -> Iterator[ScheduleFire]:
        return iter(self.fires)

    def __len__(self) -> int:
        return len(self.fires)


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """Totals over all schedules."""

    active: int
    paused: int
    next_run_at: datetime | None
    """The next occurrence of any active schedule."""
    late_seconds: float
    """How long the earliest due occurrence has not been fired. 0 if none is due."""


def scheduler_status(response: pb.GetSchedulerStatusResponse) -> SchedulerStatus:
    """Return the totals in a message."""
    return SchedulerStatus(
        response.active, response.paused, time_of(response, "next_run_at"), response.late_seconds
    )


def schedule_info(view: pb.ScheduleView) -> ScheduleInfo:
    """Return the schedule in a message."""
    return ScheduleInfo(
        id=view.schedule_id,
        name=view.name or None,
        topic=view.topic,
        kind=view.kind,
        spec=spec_of(view),
        next_run_at=time_of(view, "next_run_at"),
        last_run_at=time_of(view, "last_run_at"),
        paused=view.paused,
        priority=view.priority,
        max_attempts=view.max_attempts,
        metadata=dict(view.metadata),
        payload=view.payload,
        catch_up=cast("CatchUp", view.catch_up),
        created_at=time_of(view, "created_at"),
        declared_by=view.declared_by or None,
        vanished_at=time_of(view, "vanished_at"),
        start_within=view.start_within.ToTimedelta() if view.HasField("start_within") else None,
        overlap=cast("Overlap", view.overlap or "allow"),
        queued_for=time_of(view, "queued_for"),
    )


def schedule_fire(fire: pb.ScheduleFire) -> ScheduleFire:
    """Return the fire in a message."""
    return ScheduleFire(fire.job_id, time_of(fire, "fired_at"), JobStatus(fire.status))
