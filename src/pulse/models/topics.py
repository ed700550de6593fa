"""Topics: the settings that hold for their jobs, who set them, and what is in use of their limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pulse.errors import InvalidArgument
from pulse.messages import Items, Reader
from pulse.topic_settings import ENTRIES, Backoff, Backoffs, Entries, Keeping, Rate, RateKind, Span
from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class DeclaredEntries:
    """Limits that one or several connected workers declare."""

    entries: Mapping[str, Any]
    workers: int
    worker_id: str
    """The worker that declared them last."""
    declared_at: datetime | None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of a topic, by owner. Each has values by the names that `Pulse.set_topic` takes.

    An entry of an operator wins over an entry that workers declare in code, which wins over the settings
    of the servers.
    """

    topic: str
    in_force: Mapping[str, Any]
    """The values that hold. An entry that is not in it holds nowhere."""
    decided_by: Mapping[str, str]
    """Who set each of them: operator, code, server, or pool."""
    operator: Mapping[str, Any] = field(default_factory=dict)
    set_by: str = ""
    """The user of the last change by an operator; empty if the server requires none."""
    set_at: datetime | None = None
    """None: no operator has set anything."""
    declared: Mapping[str, Any] = field(default_factory=dict)
    """What counts of the declarations of workers."""
    declared_by: str = ""
    """The worker that declared something last."""
    declared_at: datetime | None = None
    differing: tuple[DeclaredEntries, ...] = ()
    """The limits that connected workers declare, if they differ. The strictest holds."""
    before: Mapping[str, Any] = field(default_factory=dict)
    """Durations that were shortened. They count until `shorter_from`."""
    shorter_from: datetime | None = None
    """When shortened durations begin to delete. None: none is waiting."""
    pending: str = ""
    """Accepted limits are not in force yet: the transactions that have to end first, in a clause."""

    @property
    def has_own(self) -> bool:
        """Whether an operator or the code of a worker decides something, or a shortened duration counts."""
        return bool(self.operator or self.declared or self.before)


@dataclass(frozen=True, slots=True)
class AllTopicSettings(Items[TopicSettings]):
    """The topics that have settings of their own, by name."""

    settings: tuple[TopicSettings, ...]
    server: Mapping[str, Any]
    """The settings of the server that answered. They hold for all others."""

    def of(self, topic: str) -> TopicSettings:
        """Return the settings of the topic; those of the server if it has none of its own."""
        own = next((each for each in self.settings if each.topic == topic), None)
        return own or TopicSettings(topic, self.server, dict.fromkeys(self.server, "server"))


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """A topic with limits in force, and how much of them is in use."""

    topic: str
    in_force: Mapping[str, Any]
    """The limits. In a pool, these are the numbers of the pool."""
    running: int
    """The jobs that are counted; in a pool, of all its topics."""
    held_until: datetime | None
    """No job starts before then: see `Pulse.hold`."""
    next_start_at: datetime | None
    """The rate is spent until then."""
    started: int = 0
    """The starts that the rate counts now; in a pool, of all its topics."""
    pending: str = ""
    """Accepted limits are not in force yet: the transactions that have to end first, in a clause."""


@dataclass(frozen=True, slots=True)
class LaneInfo:
    """A lane of a topic, and where it stands."""

    lane: str
    """Empty: the jobs without a lane."""
    waiting: int
    """Counted to a thousand."""
    running: int
    oldest: datetime | None
    """When the next job of the lane was submitted. None: no job waits."""
    next_start_at: datetime | None
    """Its rate is spent, or a retry holds it, until then."""
    weight: int
    limit: int | None
    """Its own, instead of `per_lane`."""


def entries_message(entries: Entries) -> pb.TopicEntries:
    """Return the message of checked entries."""
    message = pb.TopicEntries()
    for name, value in entries.items():
        match ENTRIES[name].kind:
            case Span():
                getattr(message, name).FromTimedelta(value)
            case Keeping() if value == "forever":
                getattr(message, name).forever = True
            case Keeping():
                getattr(message, name).duration.FromTimedelta(value)
            case RateKind():
                rate = getattr(message, name)
                rate.starts = value.starts
                rate.period.FromTimedelta(value.per)
            case Backoffs():
                delays = getattr(message, name)
                delays.factor, delays.jitter = value.factor, value.jitter
                delays.first.FromTimedelta(value.first)
                delays.longest.FromTimedelta(value.longest)
            case _:
                setattr(message, name, value)
    return message


def entries_of(message: pb.TopicEntries) -> dict[str, Any]:
    """Return the entries of a message. Raises a ValueError that names an entry that is no value."""
    found = {}
    for descriptor, value in message.ListFields():
        name = descriptor.name
        try:
            match ENTRIES[name].kind:
                case Span():
                    value = value.ToTimedelta()
                case Keeping():
                    value = _kept(value)
                case RateKind():
                    value = Rate(value.starts, value.period.ToTimedelta())
                case Backoffs():
                    value = Backoff(
                        first=value.first.ToTimedelta(),
                        factor=value.factor,
                        longest=value.longest.ToTimedelta(),
                        jitter=value.jitter,
                    )
        except InvalidArgument as problem:
            raise ValueError(f"{name} {problem.message.partition(' ')[2]}") from None
        except (OverflowError, ValueError):
            raise ValueError(f"{name} is not a valid duration: it must be at most 3650 days.") from None
        found[name] = value
    return {name: found[name] for name in ENTRIES if name in found}


def _kept(keep: pb.Keep) -> Any:
    if keep.WhichOneof("length") == "duration":
        return keep.duration.ToTimedelta()
    if not keep.forever:
        raise InvalidArgument("Keep(…) has neither a duration nor forever: set one of them.")
    return "forever"


def _entries(name: str) -> Any:
    return lambda message: entries_of(getattr(message, name))


Reader(DeclaredEntries, entries=_entries("entries"))
topic_settings = Reader(
    TopicSettings, **{name: _entries(name) for name in ("in_force", "operator", "declared", "before")}
)
"""Returns the settings in a message."""
topic_limits = Reader(TopicLimits, in_force=_entries("in_force"))
"""Returns the limits in a message."""
lane_info = Reader(LaneInfo)
"""Returns the lane in a `LaneView`."""
