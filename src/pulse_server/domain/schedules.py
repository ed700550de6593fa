"""The nouns of scheduling: when to fire, what to insert, and how far the cursor has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID, uuid5

# Part of every fire's identity: changing it would fire the occurrence that is due at that moment twice.
_FIRES = UUID("6f1c8f5e-52f0-4b0a-9a1d-1f3e0a4c7b6d")


class CatchUp(StrEnum):
    """How to handle occurrences that were missed while no server ran."""

    ONE = "one"  # fire once, late, and go on from now
    SKIP = "skip"  # go on from now
    ALL = "all"  # fire every missed one, up to a bound


class Overlap(StrEnum):
    """How an occurrence behaves while a job of the schedule is unfinished. ADR-0066"""

    ALLOW = "allow"  # make another job
    SKIP = "skip"  # make none
    QUEUE = "queue"  # wait, one at a time, and fire once that job has finished


@dataclass(frozen=True, slots=True)
class Once:
    at: datetime


@dataclass(frozen=True, slots=True)
class Every:
    interval: timedelta


@dataclass(frozen=True, slots=True)
class Cron:
    expression: str
    time_zone: str = "UTC"


Timetable: TypeAlias = Once | Every | Cron


@dataclass(frozen=True, slots=True)
class Work:
    """The job that each fire inserts."""

    topic: str
    payload: bytes
    priority: int
    max_attempts: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    attempts_by_policy: bool = False
    """Whether the policy of the topic at the time of the fire wins over max_attempts."""
    max_attempts_is_default: bool = False
    """With attempts_by_policy: whether max_attempts is the handler's, else the settings'."""
    start_within: timedelta | None = None
    """A job that has not started this long after its occurrence is canceled. None: no limit."""

    @property
    def default_attempts(self) -> int | None:
        """The attempts of the handler, for a topic without a policy. None: it was stored without them."""
        return self.max_attempts if self.max_attempts_is_default else None


class Override(NamedTuple):
    """An entry that an operator has set in place of the code."""

    declared: Any
    """What the code declares for it."""
    set_by: str
    """The user; empty on a server without users."""
    set_at: datetime


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as stored. `next_run_at` is the cursor: the one place where scheduling time lives."""

    id: str
    name: str | None
    timetable: Timetable
    work: Work
    catch_up: CatchUp
    paused: bool
    next_run_at: datetime
    last_run_at: datetime | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None  # when its definition changed last; fires do not count
    declared_by: str | None = None  # the user; None: made on an open server, or before users were kept
    application: str | None = None  # whose code declares it
    vanished_at: datetime | None = None  # since then its code declares it no longer
    overlap: Overlap = Overlap.ALLOW
    queued_for: datetime | None = None  # the occurrence that waits for an unfinished job
    overrides: Mapping[str, Override] | None = None
    """The entries that operators have set, by name. None: no code declares the schedule."""

    @property
    def kind(self) -> str:
        match self.timetable:
            case Once():
                return "once"
            case Every():
                return "interval"
            case Cron():
                return "cron"


@dataclass(frozen=True, slots=True)
class Fire:
    """One step of a schedule's cursor: from `occurrence` to `next_run_at` (None: it was the last one).

    `job_id` is None where the occurrence is passed over without a job.
    """

    schedule_id: str
    occurrence: datetime
    next_run_at: datetime | None
    job_id: str | None


def fire_id(schedule_id: str, occurrence: datetime) -> str:
    """The id of an occurrence's job: the same on every server, so it is inserted once."""
    return str(uuid5(_FIRES, f"{schedule_id}|{occurrence.astimezone(UTC).isoformat()}"))


@dataclass(frozen=True, slots=True)
class SchedulerStatus:
    """All schedules at a glance."""

    active: int
    paused: int
    next_run_at: datetime | None
    """The next run of the active schedule that is due first."""
    late: timedelta
    """How long that run has been due, by the database's clock; zero if it is not due yet."""
