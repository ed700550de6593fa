"""Schedules and their fires as the verbs return them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from pulse.jobs.models import JobStatus
from pulse.messages import Items, Reader
from pulse.models.specs import At, Cron, Every, spec_of
from pulse.payload import decode_json

CatchUp: TypeAlias = Literal["one", "skip", "all"]
"""The policy for occurrences that were missed while no pulsed ran: one late fire for all of them, none, or
one for each up to a limit."""

Overlap: TypeAlias = Literal["allow", "skip", "queue"]
"""The policy for an occurrence while a job of the schedule is unfinished: another job, none, or one that
waits until that job has finished."""


@dataclass(frozen=True, slots=True)
class ScheduleOverride:
    """An entry of a schedule that an operator has set in place of the code that declares it."""

    entry: str
    """at, every, cron, time_zone, topic, payload, priority, max_attempts, metadata, catch_up, start_within or
    overlap."""
    set_by: str | None
    """The user. None: the server had no users."""
    set_at: datetime | None


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
    declared: bool = False
    """Whether code declares it: `every` or `cron` of a client, or `schedule` with `replace`."""
    overrides: tuple[ScheduleOverride, ...] = ()
    """The entries that operators have set. What code declares for them does not apply until `reset`."""
    declares: ScheduleInfo | None = None
    """What the code declares, if there are overrides."""

    def entry(self, name: str) -> Any:
        """Return the value of an entry, by its name in `overrides`; None if this version does not know it."""
        match name:
            case "at" | "every" | "cron":
                # Its timetable has one of them.
                return getattr(self.spec, {"at": "moment", "every": "interval", "cron": "expression"}[name])
            case "time_zone":
                return getattr(self.spec, "tz")  # noqa: B009 - of a Cron
        return getattr(self, name, None)

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
class SchedulePage(Items[ScheduleInfo]):
    """One page of schedules, oldest first."""

    schedules: tuple[ScheduleInfo, ...]
    next_cursor: str | None
    """Pass it to the next `schedules.list`. None on the last page."""


@dataclass(frozen=True, slots=True)
class FirePage(Items[ScheduleFire]):
    """One page of the fires of a schedule, newest first."""

    fires: tuple[ScheduleFire, ...]
    next_cursor: str | None
    """Pass it to the next `schedules.fires`. None on the last page."""


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """Totals over all schedules."""

    active: int
    paused: int
    next_run_at: datetime | None
    """The next occurrence of any active schedule."""
    late_seconds: float
    """How long the earliest due occurrence has not been fired. 0 if none is due."""


scheduler_status = Reader(SchedulerStatus)
"""Returns the totals in a `GetSchedulerStatusResponse`."""
schedule_info = Reader(
    ScheduleInfo, id="schedule_id", spec=spec_of, overlap=lambda view: view.overlap or "allow"
)
"""Returns the schedule in a `ScheduleView`."""
schedule_page = Reader(SchedulePage, next_cursor="next_page_token")
"""Returns the page in a `ListSchedulesResponse`."""
fire_page = Reader(FirePage, next_cursor="next_page_token")
"""Returns the page in a `ListScheduleFiresResponse`."""
