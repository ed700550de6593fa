"""Rules of schedules: when to fire, what to insert, and who owns an entry."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pulse import cron_expressions
from pulse_server.base.bounds import LAST_MOMENT
from pulse_server.base.errors import InvalidArgument

# ---------------------------------------------------------------- schedules
# The nouns of scheduling: when to fire, what to insert, and how far the cursor has come.

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


# ---------------------------------------------------------------- timetables
# When a timetable fires. Pure: the caller says what time it is.
#
# A timetable is checked when it is made, not when it fires: one that cannot fire would only be noticed in
# a log. An interval keeps its phase, however late a fire was. docs/figures.md#timetables

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


# ---------------------------------------------------------------- schedule owners
# Who owns an entry of a schedule: an operator, or the code that declares it. ADR-0086
#
# An entry that an operator has set wins over what code declares, until it is handed back. The
# schedule keeps what the code declares in its place.

ENTRIES = (
    "at",
    "every",
    "cron",
    "time_zone",
    "topic",
    "payload",
    "priority",
    "max_attempts",
    "metadata",
    "catch_up",
    "start_within",
    "overlap",
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
