"""When a timetable fires. Pure: the caller says what time it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.limits import LAST_MOMENT
from pulse_server.domain.schedules import CatchUp, Cron, Every, Fire, Once, Schedule, Timetable, fire_id

SHORTEST_INTERVAL = timedelta(seconds=1)
LONGEST_INTERVAL = timedelta(days=3650)
# A fire is late by up to a tick on a good day. Past this it was missed.
MISSED_AFTER = timedelta(minutes=1)
# How many missed occurrences `catch_up = all` replays at the most; older ones are passed over.
MOST_REPLAYED = 100

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Files that may lie beside the zones; what they mean differs from host to host.
_OF_THIS_HOST = ("localtime", "posixrules", "posix/", "right/")
_FIELDS = 5
# Every value of every field written out is shorter.
_LONGEST_CRON = 1000


def check_timetable(timetable: Timetable, now: datetime) -> Timetable:
    """The timetable if it can ever fire, or InvalidArgument naming the field."""
    match timetable:
        case Every(interval) if interval < SHORTEST_INTERVAL:
            raise InvalidArgument("every", "is shorter than one second: the scheduler ticks once a second.")
        case Every(interval) if interval > LONGEST_INTERVAL:
            raise InvalidArgument("every", f"is longer than {LONGEST_INTERVAL.days} days.")
        case Cron(expression, time_zone):
            _check_cron(expression, time_zone, now)
    return timetable


def first_run(timetable: Timetable, now: datetime) -> datetime:
    """When a timetable that starts now fires first. A past `at` fires at once, under its own time."""
    match timetable:
        case Once(at):
            return at
        case Every(interval):
            return now + interval
        case Cron():
            return next(_occurrences(timetable, now))


def upcoming(timetable: Timetable, cursor: datetime, count: int) -> list[datetime]:
    """The next occurrences, the cursor's own first. They end with the last moment that may be asked for."""
    match timetable:
        case Once():
            following: Iterator[datetime] = iter(())
        case Every(interval):
            following = (cursor + number * interval for number in range(1, count))
        case Cron():
            following = islice(_occurrences(timetable, cursor), count - 1)
    # A day that comes every 28 years takes 10 ms to find, and a hundred of them nobody wants to see.
    return [cursor, *takewhile(lambda occurrence: occurrence <= LAST_MOMENT, following)]


def next_run(timetable: Timetable, cursor: datetime, after: datetime) -> datetime | None:
    """The first occurrence past `after`; None for a timetable that is over. An interval keeps its phase."""
    match timetable:
        case Once():
            return None
        case Every(interval):
            steps = max(0, (after - cursor) // interval) + 1
            return cursor + steps * interval
        case Cron():
            return next(_occurrences(timetable, max(after, cursor)))


def plan(schedule: Schedule, now: datetime) -> Fire:
    """What the scheduler does about a schedule that is due: which job, and where the cursor goes."""
    timetable, cursor = schedule.timetable, schedule.next_run_at
    job_id: str | None = fire_id(schedule.id, cursor)
    following = next_run(timetable, cursor, now)
    if following is not None and schedule.catch_up is CatchUp.SKIP and now - cursor > MISSED_AFTER:
        job_id = None
    elif following is not None and schedule.catch_up is CatchUp.ALL:
        following = _replay(timetable, cursor, now)
    return Fire(schedule.id, cursor, following, job_id)


def _replay(timetable: Timetable, cursor: datetime, now: datetime) -> datetime | None:
    """The next missed occurrence, if there is one within the bound, else the next one to come."""
    following = next_run(timetable, cursor, cursor)
    if following is None or following > now:
        return following
    match timetable:
        case Every(interval):
            missed = (now - cursor) // interval
            return cursor + max(1, missed - MOST_REPLAYED + 1) * interval
        case Cron():
            recent = list(
                islice(_occurrences(timetable, now + timedelta(seconds=1), reverse=True), MOST_REPLAYED)
            )
            return max(following, recent[-1])
        case Once():
            return None


def zone(name: str) -> ZoneInfo:
    """The time zone, or InvalidArgument."""
    try:
        if name.startswith(_OF_THIS_HOST):
            raise KeyError(name)
        return _zone(name)
    except (KeyError, ValueError, OSError):
        raise InvalidArgument(
            "time_zone", f"{name[:60]!r} is not known; use an IANA name such as Europe/Paris, or UTC."
        ) from None


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _occurrences(cron: Cron, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    expression = _NAMED.get(cron.expression.lower(), cron.expression)
    for local in CronSim(expression, start.astimezone(zone(cron.time_zone)), reverse=reverse):
        occurrence = local.astimezone(UTC)
        # In the hour that the clocks repeat, a time of day that has had its fire still lies ahead by the wall
        # clock. It belongs to the first pass.
        if reverse or occurrence > start:
            yield occurrence


def _check_cron(expression: str, time_zone: str, now: datetime) -> None:
    zone(time_zone)
    shown = expression[:80]
    if not expression.strip():
        raise InvalidArgument(
            "cron", "is empty: give five fields, such as '0 9 * * 1-5', or a name such as @daily."
        )
    if len(expression) > _LONGEST_CRON:
        raise InvalidArgument(
            "cron", f"has {len(expression)} characters; {_LONGEST_CRON} are allowed at the most."
        )
    if expression.startswith("@"):
        if expression.lower() not in _NAMED:
            raise InvalidArgument("cron", f"{shown!r} is not known; the names are {', '.join(_NAMED)}.")
        return
    fields = expression.split()
    if len(fields) != _FIELDS:
        raise InvalidArgument(
            "cron",
            f"{shown!r} has {len(fields)} fields; it takes five: "
            "minute, hour, day of month, month, day of week.",
        )
    try:
        next(_occurrences(Cron(expression, time_zone), now))
    except CronSimError as error:
        problem = str(error).removeprefix("Bad ")
        raise InvalidArgument("cron", f"{shown!r} has a bad {problem} field.") from None
    except StopIteration:
        raise InvalidArgument(
            "cron", f"{shown!r} never fires: no such day comes in the next 50 years."
        ) from None
