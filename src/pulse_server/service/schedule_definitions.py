"""Requests for schedules: definitions and changes, and how they apply to stored schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from pulse_server.base.errors import InvalidArgument
from pulse_server.domain.schedule_owners import ENTRIES, another_kind, without_prefix
from pulse_server.domain.schedules import CatchUp, Cron, Every, Once, Overlap, Schedule, Timetable, Work
from pulse_server.domain.timetables import read_expression

NO_LIMIT = timedelta(0)


@dataclass(frozen=True, slots=True)
class Definition:
    """The schedule that a caller requests."""

    name: str | None
    timetable: Timetable
    work: Work
    catch_up: CatchUp
    refuse_past: bool = False
    overlap: Overlap = Overlap.ALLOW


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that a caller requests; None: unchanged."""

    timetable: Timetable | None = None
    topic: str | None = None
    payload: bytes | None = None
    priority: int | None = None
    max_attempts: int | None = None
    metadata: dict[str, str] | None = None
    catch_up: CatchUp | None = None
    time_zone: str | None = None
    start_within: timedelta | None = None
    """NO_LIMIT removes it."""
    overlap: Overlap | None = None
    returned: Sequence[str] = ()
    """Entries that go back to what code declares."""


def is_same(existing: Schedule, wanted: Definition) -> bool:
    """True if the stored schedule has this definition. Attempts that the policy overrides do not
    count: a program without the handler, or a server with other settings, has other numbers."""
    work = existing.work
    if work.attempts_by_policy and wanted.work.attempts_by_policy:
        work = replace(
            work,
            max_attempts=wanted.work.max_attempts,
            max_attempts_is_default=wanted.work.max_attempts_is_default,
        )
    return (without_prefix(existing.timetable), work, existing.catch_up, existing.overlap) == (
        without_prefix(wanted.timetable),
        wanted.work,
        wanted.catch_up,
        wanted.overlap,
    )


def has_same_default(existing: Schedule, wanted: Definition) -> bool:
    """True if the handler of the caller has the attempts that the stored schedule has as its default."""
    return existing.work.default_attempts == wanted.work.default_attempts


def check_overlap(timetable: Timetable, overlap: Overlap) -> None:
    """Raise InvalidArgument for an overlap of a schedule that fires once."""
    if isinstance(timetable, Once) and overlap is not Overlap.ALLOW:
        raise InvalidArgument("overlap", "belongs to schedules that repeat: this one fires once.")


def set_entries(changes: Changes) -> set[str]:
    """Return the names of the entries that the changes set."""
    named = {name for name in ENTRIES if getattr(changes, name, None) is not None}
    match changes.timetable:
        case Once():
            named.add("at")
        case Every():
            named.add("every")
        case Cron(expression):
            named.add("cron")
            if read_expression(expression).zone is not None:
                named.add("time_zone")
    return named


def changed_work(work: Work, changes: Changes) -> Work:
    """Return the job that each fire inserts after the changes."""
    return Work(
        topic=work.topic if changes.topic is None else changes.topic,
        payload=work.payload if changes.payload is None else changes.payload,
        priority=work.priority if changes.priority is None else changes.priority,
        max_attempts=work.max_attempts if changes.max_attempts is None else changes.max_attempts,
        metadata=work.metadata if changes.metadata is None else changes.metadata,
        attempts_by_policy=changes.max_attempts is None and work.attempts_by_policy,
        max_attempts_is_default=changes.max_attempts is None and work.max_attempts_is_default,
        start_within=work.start_within if changes.start_within is None else changes.start_within or None,
    )


def changed_timetable(schedule: Schedule, changes: Changes) -> Timetable:
    """Return the new timetable, of the same kind. The time zone stays if none is given, unless the new
    expression has its own."""
    current = schedule.timetable
    wanted = current if changes.timetable is None else changes.timetable
    if type(wanted) is not type(current):
        raise another_kind(schedule)
    if isinstance(current, Cron) and isinstance(wanted, Cron):
        if (own := read_expression(wanted.expression).zone) is None:
            return Cron(wanted.expression, changes.time_zone or current.time_zone)
        if changes.timetable is None and changes.time_zone not in (None, "", own):
            raise InvalidArgument(
                "time_zone", "is named by the cron expression itself: change it there, in the expression."
            )
        return wanted
    if changes.time_zone:
        raise InvalidArgument("time_zone", "belongs to cron: moments and intervals need none.")
    return wanted
