"""When a timetable fires. Pure: the caller says what time it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pulse import cron_expressions
from pulse_server.base.bounds import LAST_MOMENT
from pulse_server.base.errors import InvalidArgument
from pulse_server.domain.schedules import CatchUp, Cron, Every, Fire, Once, Schedule, Timetable, fire_id

# Each occurrence costs a job and a transaction: a schedule may have ten a second.
SHORTEST_INTERVAL = timedelta(milliseconds=100)
LONGEST_INTERVAL = timedelta(days=3650)
# A fire is late by up to a tick on a good day. Past this it was missed.
MISSED_AFTER = timedelta(minutes=1)
# How many missed occurrences `catch_up = all` replays at the most; older ones are passed over.
MOST_REPLAYED = 100

# Files that may lie beside the zones. Their meaning differs from host to host.
_OF_THIS_HOST = ("localtime", "posixrules", "posix/", "right/")


def check_timetable(timetable: Timetable, now: datetime) -> Timetable:
    """The timetable if it can ever fire, or InvalidArgument naming the field."""
    match timetable:
        case Every(interval):
            _check_interval("every", interval)
        case Cron(expression, time_zone):
            _check_cron(expression, time_zone, now)
    return timetable


def cron(expression: str, time_zone: str) -> Cron:
    """The expression in the zone that it names, else in `time_zone`, else in UTC.

    Callers that chose no zone send UTC, so UTC beside a named zone is ignored. Any other zone
    contradicts the expression and is refused.
    """
    text = " ".join(expression.split())
    own = read_expression(text).zone
    if own is not None and time_zone not in ("", "UTC", own):
        raise InvalidArgument(
            "time_zone",
            f"is {time_zone[:60]!r}, and the cron expression names {own[:60]!r}: name the zone once.",
        )
    return Cron(text, own or time_zone or "UTC")


def read_expression(text: str) -> cron_expressions.CronExpression:
    """Read the form of a cron expression. Raises InvalidArgument; the fields themselves are not checked."""
    try:
        return cron_expressions.read_expression(text)
    except ValueError as error:
        shown = f"{stripped[:80]!r} " if (stripped := text.strip()) else ""
        raise InvalidArgument("cron", f"{shown}{error}") from None


def first_run(timetable: Timetable, now: datetime) -> datetime:
    """When a timetable that starts now fires first. A past `at` fires at once, under its own time."""
    match _plain(timetable):
        case Once(at):
            return at
        case Every(interval):
            return now + interval
        case Cron() as plain:
            return next(_occurrences(plain, now))


def upcoming(timetable: Timetable, cursor: datetime, count: int) -> list[datetime]:
    """The next occurrences, the cursor's own first. They end with the last moment that may be asked for."""
    match _plain(timetable):
        case Once():
            following: Iterator[datetime] = iter(())
        case Every(interval):
            following = (cursor + number * interval for number in range(1, count))
        case Cron() as plain:
            following = islice(_occurrences(plain, cursor), count - 1)
    # A day that comes every 28 years takes 10 ms to find; a preview needs no hundred of them.
    return [cursor, *takewhile(lambda occurrence: occurrence <= LAST_MOMENT, following)]


def next_run(timetable: Timetable, cursor: datetime, after: datetime) -> datetime | None:
    """The first occurrence past `after`; None for a timetable that is over. An interval keeps its phase."""
    match _plain(timetable):
        case Once():
            return None
        case Every(interval):
            steps = max(0, (after - cursor) // interval) + 1
            return cursor + steps * interval
        case Cron() as plain:
            return next(_occurrences(plain, max(after, cursor)))


def plan(schedule: Schedule, now: datetime) -> Fire:
    """Plan the next step of a due schedule: which job to insert, and where the cursor goes."""
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
    match _plain(timetable):
        case Every(interval):
            missed = (now - cursor) // interval
            return cursor + max(1, missed - MOST_REPLAYED + 1) * interval
        case Cron() as plain:
            recent = list(
                islice(_occurrences(plain, now + timedelta(seconds=1), reverse=True), MOST_REPLAYED)
            )
            return max(following, recent[-1])
        case Once():
            return None


def zone(name: str, field: str = "time_zone", introduction: str = "") -> ZoneInfo:
    """The time zone, or InvalidArgument naming the field that names it."""
    try:
        if name.startswith(_OF_THIS_HOST):
            raise KeyError(name)
        return _zone(name)
    except (KeyError, ValueError, OSError):
        raise InvalidArgument(
            field, f"{introduction}{name[:60]!r} is not known; use an IANA name such as Europe/Paris, or UTC."
        ) from None


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _plain(timetable: Timetable) -> Timetable:
    """The timetable to compute with: an `@every` is an interval, every other cron has five fields."""
    if not isinstance(timetable, Cron):
        return timetable
    read = read_expression(timetable.expression)
    if read.interval is not None:
        return Every(read.interval)
    return Cron(read.fields, read.zone or timetable.time_zone)


def _occurrences(cron: Cron, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
    for local in CronSim(cron.expression, start.astimezone(zone(cron.time_zone)), reverse=reverse):
        occurrence = local.astimezone(UTC)
        # In the hour that the clocks repeat, a time of day that has had its fire still lies ahead by the wall
        # clock. It belongs to the first pass.
        if reverse or occurrence > start:
            yield occurrence


def _check_interval(field: str, interval: timedelta) -> None:
    if interval < SHORTEST_INTERVAL:
        raise InvalidArgument(
            field,
            f"is shorter than {SHORTEST_INTERVAL // timedelta(milliseconds=1)} milliseconds: "
            "each occurrence is a job of its own. For work without a pause, use a handler that loops.",
        )
    if interval > LONGEST_INTERVAL:
        raise InvalidArgument(field, f"is longer than {LONGEST_INTERVAL.days} days.")


def _check_cron(expression: str, time_zone: str, now: datetime) -> None:
    read = read_expression(expression)
    if read.zone is None:
        zone(time_zone)
    else:
        zone(read.zone, "cron", "names a time zone: ")
    if read.interval is not None:
        return _check_interval("cron", read.interval)
    shown = expression[:80]
    try:
        cron_expressions.check_fields(read.fields)
        next(_occurrences(Cron(read.fields, read.zone or time_zone), now))
    except (ValueError, CronSimError) as error:
        raise InvalidArgument("cron", f"{shown!r} {error}") from None
    except StopIteration:
        raise InvalidArgument(
            "cron", f"{shown!r} never occurs: no such day comes in the next 50 years."
        ) from None
