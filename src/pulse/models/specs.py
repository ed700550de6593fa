"""When a schedule fires: at a time, after a delay, at an interval, or by a cron expression."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from pulse.cron_expressions import fires_a_day, zone_of
from pulse.errors import InvalidArgument
from pulse.messages import check_aware

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
