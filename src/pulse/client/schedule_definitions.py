"""The request that creates a schedule, and whether it may be repeated."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

from pulse import payload as payloads
from pulse.cron_expressions import check_fields, read_expression
from pulse.errors import InvalidArgument, Unavailable
from pulse.handlers.registry import Registry
from pulse.jobs.caller import Caller
from pulse.jobs.submissions import check_known, check_values
from pulse.messages import message
from pulse.models.schedules import CatchUp, Overlap, ScheduleInfo, schedule_info
from pulse.models.specs import Cron, Every, Spec, spec_fields
from pulse.schedule_definitions import ScheduleOptions
from pulse.v1 import pulse_pb2 as pb

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
        payload=payloads.encode(args),
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
