"""Schedules: when they fire, how the verbs return them, and the request that creates one.

A schedule fires at a time, after a delay, at an interval, or by a cron expression.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

from pulse.cron_expressions import check_fields, fires_a_day, read_expression, zone_of
from pulse.errors import InvalidArgument, Unavailable
from pulse.handlers.registry import Registry
from pulse.jobs.caller import Caller
from pulse.jobs.models import JobStatus
from pulse.jobs.submissions import check_known, check_values
from pulse.messages import Items, Reader, check_aware, message
from pulse.payload import decode_json, encode
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class At:
    """Fire once, at this time. It needs a time zone. A time in the past fires at once."""

    moment: datetime

    def __post_init__(self) -> None:
        if not isinstance(self.moment, datetime):
            raise InvalidArgument(f"At takes a datetime, not {self.moment!r}.")
        check_aware(f"At({self.moment!r})", self.moment)

    def __repr__(self) -> str:
        return f"At({self.moment.isoformat()})"


@dataclass(frozen=True, slots=True)
class After:
    """Fire once, this long after the schedule was sent, by the clock of this machine."""

    delay: timedelta

    def __post_init__(self) -> None:
        _check_duration("After", self.delay)
        if self.delay < timedelta(0):
            raise InvalidArgument(f"After({self.delay!r}) lies in the past: give a delay of zero or more.")

    def __repr__(self) -> str:
        return f"After({self.delay})"


@dataclass(frozen=True, slots=True)
class Every:
    """Fire at an interval of 100 milliseconds or more, first after one interval."""

    interval: timedelta

    def __post_init__(self) -> None:
        _check_duration("Every", self.interval)

    @property
    def fires_a_day(self) -> float:
        """How often it fires in a day."""
        return timedelta(days=1) / self.interval if self.interval else 0

    def __repr__(self) -> str:
        return f"Every({self.interval})"


@dataclass(frozen=True, slots=True, init=False)
class Cron:
    """Fire by a cron expression: five fields, a name such as @daily, or `@every 1h30m`.

    It is evaluated in an IANA time zone, which the expression may name: `TZ=Europe/Paris 0 9 * * *`. The
    default is UTC, and in `schedules.update` the zone that the schedule has.
    """

    expression: str
    tz: str
    names_zone: bool = field(compare=False, repr=False)
    """Whether `tz` was given, or named by the expression."""

    def __init__(self, expression: str, tz: str | ZoneInfo | None = None) -> None:
        if not isinstance(expression, str):
            raise InvalidArgument(f"Cron takes an expression such as '0 9 * * 1-5', not {expression!r}.")
        own = zone_of(expression)
        name = "UTC" if tz is None else zone_name(tz)
        if own is not None and name == "UTC":
            name = own
        object.__setattr__(self, "expression", expression)
        object.__setattr__(self, "tz", name)
        object.__setattr__(self, "names_zone", tz is not None or own is not None)

    @property
    def fires_a_day(self) -> float:
        """How often it fires on a day on which it fires."""
        return fires_a_day(self.expression)

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, tz={self.tz!r})"


Spec: TypeAlias = At | After | Every | Cron


def spec_fields(spec: Spec) -> dict[str, Any]:
    """Return the fields of a request that carry the spec."""
    match spec:
        case At(moment):
            return {"at": moment}
        case After(delay):
            return {"at": datetime.now(UTC) + delay}
        case Every(interval):
            return {"every": interval}
        case Cron(expression, tz):
            return {"cron": expression, "time_zone": tz}
    raise InvalidArgument(f"A schedule needs At(…), After(…), Every(…) or Cron(…), not {spec!r}.")


def spec_of(view: pb.ScheduleView) -> At | Every | Cron:
    """Return the spec in a message."""
    if view.HasField("at"):
        return At(view.at.ToDatetime(tzinfo=UTC))
    if view.HasField("every"):
        return Every(view.every.ToTimedelta())
    return Cron(view.cron, view.time_zone or "UTC")


def zone_name(tz: object) -> str:
    """Return the name of a time zone. Raises InvalidArgument."""
    if isinstance(tz, str) and tz:
        return tz
    from zoneinfo import ZoneInfo  # imported here: most programs give a name, and the module is slow to load

    if isinstance(tz, ZoneInfo) and tz.key:
        return tz.key
    raise InvalidArgument(f"tz has to name a time zone, such as 'Europe/Paris', not {tz!r}.")


def _check_duration(kind: str, duration: object) -> None:
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        raise InvalidArgument(f"{kind} takes a timedelta: write {kind}(timedelta(seconds={duration})).")
    if not isinstance(duration, timedelta):
        raise InvalidArgument(f"{kind} takes a timedelta, such as timedelta(minutes=5), not {duration!r}.")


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


class ScheduleOptions(TypedDict, total=False):
    """The options of schedules."""

    name: str | None
    priority: int | None
    max_attempts: int | None
    metadata: Mapping[str, str] | None
    catch_up: CatchUp
    start_within: timedelta | None
    overlap: Overlap


# The bounds of the server for an interval.
_SHORTEST, _LONGEST = timedelta(milliseconds=100), timedelta(days=3650)


def make_definition(
    topic: str,
    args: object,
    spec: Spec,
    options: ScheduleOptions,
    *,
    replace: bool,
    strict: bool = False,
) -> pb.CreateScheduleRequest:
    """Return the request for a schedule. Raises InvalidArgument for values that cannot be sent."""
    check_known("A schedule", options, ScheduleOptions.__annotations__.keys())
    name, priority = options.get("name"), options.get("priority")
    catch_up, overlap = options.get("catch_up", "one"), options.get("overlap", "allow")
    if not isinstance(topic, str) or not topic:
        raise InvalidArgument(f"A schedule needs the topic of its jobs, such as 'send-email', not {topic!r}.")
    if name == "":
        raise InvalidArgument("name is empty: give the schedule a name, or leave it out.")
    if replace and name is None:
        raise InvalidArgument("replace needs a name: that of the schedule to update.")
    check_values(options)
    check_overlap(overlap)
    if catch_up not in get_args(CatchUp):
        raise InvalidArgument(f"catch_up={catch_up!r} is not known: use 'one', 'skip' or 'all'.")
    return message(
        pb.CreateScheduleRequest,
        topic=topic,
        payload=encode(args),
        name=name,
        priority=0 if priority is None else priority,
        max_attempts=options.get("max_attempts"),
        metadata=options.get("metadata"),
        catch_up=catch_up,
        start_within=options.get("start_within"),
        overlap=None if overlap == "allow" else overlap,
        replace=replace,
        strict=strict,
        **spec_fields(spec),
    )


def declared_definition(
    topic: str, args: object, spec: Spec, options: ScheduleOptions
) -> pb.CreateScheduleRequest:
    """Return the request for a schedule that code declares. Its name is the topic unless it has another."""
    # Here, and not by the server alone: the traceback then shows the line with the mistake.
    check_timetable(spec)
    name = options.get("name")
    named: ScheduleOptions = {**options, "name": topic if name is None else name}
    return make_definition(topic, args, spec, named, replace=True)


def with_defaults(
    definition: pb.CreateScheduleRequest, registry: Registry, *, has_priority: bool
) -> pb.CreateScheduleRequest:
    """Fill in the defaults of the topic's handler, and check that it can read the arguments.

    Its attempts are marked as a default: the topic's setting at the time of a fire wins over them.
    """
    handler = registry.get(definition.topic)
    if handler is None:
        return definition
    handler.check(definition.payload)
    if not has_priority:
        definition.priority = handler.options.priority
    if not definition.HasField("max_attempts") and handler.options.max_attempts is not None:
        definition.max_attempts, definition.max_attempts_is_default = handler.options.max_attempts, True
    if not definition.HasField("start_within") and handler.options.start_within is not None:
        definition.start_within.FromTimedelta(handler.options.start_within)
    return definition


async def create_schedule(
    caller: Caller, definition: pb.CreateScheduleRequest, timeout: timedelta | None
) -> ScheduleInfo:
    """Store the schedule. A call without an answer is repeated only if that cannot create a second one."""
    response = await caller.call(
        lambda stub: stub.CreateSchedule, definition, timeout, repeatable=_is_repeatable(definition)
    )
    require_overlap(response.schedule, definition.overlap)
    caller.session().connection.unserved.warn(response.no_worker)
    return schedule_info(response.schedule)


def check_overlap(overlap: object) -> None:
    """Raise InvalidArgument for a policy that there is not."""
    if overlap not in get_args(Overlap):
        raise InvalidArgument(f"overlap={overlap!r} is not known: use 'allow', 'skip' or 'queue'.")


def require_overlap(stored: pb.ScheduleView, overlap: str) -> None:
    """Raise Unavailable if the server stored the schedule without its overlap, which it does not know."""
    if overlap and stored.overlap != overlap:
        raise Unavailable(
            f"The server is of a version without overlap={overlap!r}: the schedule {stored.schedule_id} is "
            "stored, and fires also while a job of it is unfinished. Upgrade pulsed, then declare it again."
        )


def _is_repeatable(definition: pb.CreateScheduleRequest) -> bool:
    # The server recognizes a repeat by the name. A schedule that fires once may have fired before the repeat;
    # it is deleted then, and its name with it.
    return bool(definition.name) and not definition.HasField("at")


# ------------------------------------------------------------ timetables


def check_timetable(spec: Spec) -> None:
    """Raise InvalidArgument if the interval, the cron expression or its time zone is invalid.

    It refuses nothing that pulsed accepts.
    """
    match spec:
        case Every(interval):
            _check_interval(repr(spec), interval)
        case Cron(expression, tz):
            _check_cron(expression, tz)


def _check_interval(what: str, interval: timedelta) -> None:
    if interval < _SHORTEST:
        raise InvalidArgument(
            f"{what} is shorter than 100 milliseconds: each occurrence is a job of its own. "
            "Give a longer one."
        )
    if interval > _LONGEST:
        raise InvalidArgument(f"{what} is longer than {_LONGEST.days} days. Give a shorter one.")


def _check_cron(expression: str, tz: str) -> None:
    shown = f"The cron expression {' '.join(expression[:200].split())[:80]!r}"
    try:
        read = read_expression(expression)
        if read.interval is None:
            check_fields(read.fields)
    except ValueError as error:
        raise InvalidArgument(f"{shown} {error}") from None
    if read.zone is not None and tz not in ("UTC", read.zone):
        raise InvalidArgument(f"{shown} names the zone {read.zone!r}, and tz is {tz!r}: name the zone once.")
    _check_zone(tz)
    if read.interval is not None:
        _check_interval(shown, read.interval)


def _check_zone(name: str) -> None:
    if name == "UTC":
        return
    import zoneinfo  # imported here: most schedules are in UTC, and the module is slow to load

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # A machine without time zones knows none. The server has them.
        if zoneinfo.available_timezones():
            raise InvalidArgument(
                f"The time zone {name!r} is not known; use an IANA name such as Europe/Paris, or UTC."
            ) from None
