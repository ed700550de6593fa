"""Policies of topics: how their jobs run, and how long they are kept once they have finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from pulse.checks import check_duration
from pulse.errors import InvalidArgument
from pulse.models.limits import NO_LIMITS, DeclaredLimits, LimitPolicy
from pulse.models.reading import Items, Reader
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

Keep: TypeAlias = timedelta | Literal["forever", "default"]
"""How long finished jobs are kept. "default": the setting of the servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delays between attempts: `first`, then each `factor` times the last, at most `longest`.

    Each is drawn at random from the range of `jitter` around it: with 0.2, from 80% to 120%.
    """

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    longest: timedelta = timedelta(hours=1)
    jitter: float = 0.2

    def __post_init__(self) -> None:
        check_duration("Backoff(first=…)", self.first)
        check_duration("Backoff(longest=…)", self.longest)
        _check_number("Backoff(factor=…)", self.factor, 1, 100)
        _check_number("Backoff(jitter=…)", self.jitter, 0, 1)
        if self.longest < self.first:
            raise InvalidArgument(
                f"Backoff(longest={self.longest}) is shorter than first={self.first}: make it longer."
            )


def _check_number(name: str, value: object, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidArgument(f"{name} has to be a number from {least} to {most}, but {value!r} was given.")


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """How the jobs of a topic run. Each entry is decided on its own; None: not set here."""

    backoff: Backoff | None = None
    """The delays between attempts. If none is in force, they are the square of the attempts, in seconds."""
    max_attempts: int | None = None
    """Of jobs that are submitted without their own."""
    timeout: timedelta | None = None
    """Of one attempt. If none is in force, there is no limit."""
    max_crashes: int | None = None
    """How many attempts may end in a lost lease. Then the job is a dead letter."""

    def __bool__(self) -> bool:
        return self != _NOTHING


_NOTHING = RunPolicy()


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """The policy of a topic: how long its finished jobs are kept, by status, and how its jobs run."""

    topic: str
    keep_completed: Keep
    keep_canceled: Keep
    keep_dead_lettered: Keep
    set_by: str = ""
    """The user of the last change by an operator; empty if the server requires none."""
    set_at: datetime | None = None
    """None: no operator has set anything."""
    run: RunPolicy = _NOTHING
    """The values that operators have set. They override declared values."""
    declared: RunPolicy = _NOTHING
    """The values that a worker declares in code. They override the settings of the servers."""
    declared_by: str = ""
    """The worker that declared it."""
    declared_at: datetime | None = None
    effective: RunPolicy = _NOTHING
    """The values in force."""
    limits: LimitPolicy = NO_LIMITS
    """The limits that operators have set. They override declared limits."""
    declared_limits: LimitPolicy = NO_LIMITS
    """The strictest limits that connected workers declare."""
    effective_limits: LimitPolicy = NO_LIMITS
    """The limits in force, without the limits of other topics of a pool."""
    differing_limits: tuple[DeclaredLimits, ...] = ()
    """The declared limits of connected workers, if they differ."""
    keep_before: Mapping[str, Keep] = field(default_factory=dict)
    """Durations that were shortened, by status. They count until `shorter_from`."""
    shorter_from: datetime | None = None
    """When shortened durations begin to delete. None: none is waiting."""
    limits_pending: str = ""
    """The limits are accepted and not in force yet: the transactions that have to end first, in a clause."""

    @property
    def keeps_by_default(self) -> bool:
        """Whether the settings of the servers alone decide how long its jobs are kept."""
        return not self.keep_before and {
            self.keep_completed,
            self.keep_canceled,
            self.keep_dead_lettered,
        } == {"default"}


@dataclass(frozen=True, slots=True)
class TopicPolicies(Items[TopicPolicy]):
    """The topics that have a policy, by name."""

    policies: tuple[TopicPolicy, ...]
    server: TopicPolicy
    """The settings of the server, for all other topics. Its topic is empty."""


topic_policy = Reader(
    TopicPolicy,
    keep_completed=lambda policy: _keep(policy.retention.completed),
    keep_canceled=lambda policy: _keep(policy.retention.canceled),
    keep_dead_lettered=lambda policy: _keep(policy.retention.dead_lettered),
    keep_before=lambda policy: {
        field.name.upper(): _keep(keep) for field, keep in policy.retention_before.ListFields()
    },
)
"""Returns the policy in a message."""


def topic_policies(
    policies: Iterable[pb.TopicPolicy], server: pb.Retention, server_run: pb.RunPolicy
) -> TopicPolicies:
    """Return the policies in messages."""
    settings = pb.TopicPolicy(retention=server, effective=server_run)
    return TopicPolicies(tuple(map(topic_policy, policies)), topic_policy(settings))


def _keep(keep: pb.Keep) -> Keep:
    match keep.WhichOneof("length"):
        case "duration":
            return keep.duration.ToTimedelta()
        case "forever":
            return "forever"
    return "default"
