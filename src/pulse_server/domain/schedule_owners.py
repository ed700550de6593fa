"""Who owns an entry of a schedule: an operator, or the code that declares it. ADR-0086

An entry that an operator has set wins over what code declares, until it is handed back. The
schedule keeps what the code declares in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from pulse_server.base.errors import InvalidArgument
from pulse_server.domain.schedules import Cron, Every, Once, Override, Schedule, Timetable, Work
from pulse_server.domain.timetables import read_expression

ENTRIES = (
    *("at", "every", "cron", "time_zone", "topic", "payload", "priority", "max_attempts"),
    *("metadata", "catch_up", "start_within", "overlap"),
)


class Attempts(NamedTuple):
    """The entry max_attempts."""

    number: int
    by_policy: bool
    is_default: bool


def entries_of(schedule: Schedule) -> dict[str, Any]:
    """Return the values of the entries by name, those of the timetable by its kind."""
    work = schedule.work
    return {
        **_entries_of_timetable(schedule.timetable),
        "topic": work.topic,
        "payload": work.payload,
        "priority": work.priority,
        "max_attempts": Attempts(work.max_attempts, work.attempts_by_policy, work.max_attempts_is_default),
        "metadata": work.metadata,
        "catch_up": schedule.catch_up,
        "start_within": work.start_within,
        "overlap": schedule.overlap,
    }


def with_entries(schedule: Schedule, changes: Mapping[str, Any]) -> Schedule:
    """Return the schedule with these entries. Its cursor stays."""
    if not changes:
        return schedule
    entries = {**entries_of(schedule), **changes}
    attempts: Attempts = entries["max_attempts"]
    return replace(
        schedule,
        timetable=_timetable(schedule.timetable, entries),
        work=Work(
            topic=entries["topic"],
            payload=entries["payload"],
            priority=entries["priority"],
            max_attempts=attempts.number,
            metadata=entries["metadata"],
            attempts_by_policy=attempts.by_policy,
            max_attempts_is_default=attempts.is_default,
            start_within=entries["start_within"],
        ),
        catch_up=entries["catch_up"],
        overlap=entries["overlap"],
    )


def as_declared(schedule: Schedule) -> Schedule:
    """Return the schedule as code declares it, without what operators have set."""
    overrides = schedule.overrides or {}
    return with_entries(schedule, {entry: override.declared for entry, override in overrides.items()})


def declared_anew(current: Schedule, wanted: Schedule) -> Schedule:
    """Return the schedule after code has declared it as `wanted`: what operators have set stays."""
    overrides, declared = current.overrides or {}, entries_of(wanted)
    if type(current.timetable) is not type(wanted.timetable):
        raise another_kind(current)
    kept = {entry: override._replace(declared=declared[entry]) for entry, override in overrides.items()}
    owned = {entry: value for entry, value in declared.items() if entry not in kept}
    return replace(with_entries(current, owned), overrides=kept)


def set_by_operator(
    before: Schedule, changed: Schedule, entries: Collection[str], by: str, at: datetime
) -> Schedule:
    """Return the changed schedule, with these entries as the operator's if code declares it."""
    if before.overrides is None:
        return changed
    declared = entries_of(as_declared(before))
    news = {entry: Override(declared[entry], by, at) for entry in ENTRIES if entry in entries}
    return replace(changed, overrides={**before.overrides, **news})


def handed_back(schedule: Schedule, entries: Collection[str]) -> Schedule:
    """Return the schedule with these entries as code declares them. Others stay as they are."""
    if unknown := sorted(set(entries) - set(ENTRIES)):
        raise InvalidArgument(
            "returned", f"names {unknown[0][:40]!r}; the entries of a schedule are {', '.join(ENTRIES)}."
        )
    if schedule.overrides is None:
        if entries:
            raise InvalidArgument(
                "returned",
                f"is for schedules that code declares. No code declares {schedule.name or schedule.id}: set "
                "the entry instead.",
            )
        return schedule
    back = {entry: schedule.overrides[entry] for entry in entries if entry in schedule.overrides}
    rest = {entry: override for entry, override in schedule.overrides.items() if entry not in back}
    values = {entry: override.declared for entry, override in back.items()}
    return replace(with_entries(schedule, values), overrides=rest)


def another_kind(schedule: Schedule) -> InvalidArgument:
    return InvalidArgument(
        "spec",
        f"cannot turn a schedule of kind {schedule.kind} into another kind. Make a new schedule.",
    )


def _entries_of_timetable(timetable: Timetable) -> dict[str, Any]:
    match timetable:
        case Once(at):
            return {"at": at}
        case Every(interval):
            return {"every": interval}
        case Cron(expression, time_zone):
            return {"cron": expression, "time_zone": time_zone}


def _timetable(current: Timetable, entries: Mapping[str, Any]) -> Timetable:
    match current:
        case Once():
            return Once(entries["at"])
        case Every():
            return Every(entries["every"])
        case Cron():
            return _cron(entries["cron"], entries["time_zone"])


def without_prefix(timetable: Timetable) -> Timetable:
    """Return the timetable; a cron expression without the zone that it names, which stands beside it."""
    if isinstance(timetable, Cron) and read_expression(timetable.expression).zone is not None:
        return Cron(timetable.expression.partition(" ")[2], timetable.time_zone)
    return timetable


def _cron(expression: str, time_zone: str) -> Timetable:
    """Return the expression in the zone. It may name another zone, if the two have different owners."""
    cron = Cron(expression, time_zone)
    own = read_expression(expression).zone
    # `TZ=Asia/Tokyo 0 9 * * *` of the code, in the zone of an operator.
    return cron if own in (None, time_zone) else without_prefix(cron)
