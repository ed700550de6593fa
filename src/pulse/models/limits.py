"""Limits of topics: how many jobs run at once, how many start in a period, and whose turn it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pulse.checks import check_duration
from pulse.errors import InvalidArgument
from pulse.models.reading import Reader
from pulse.v1 import pulse_pb2 as pb

_MOST = 1_000_000
_SHORTEST_PERIOD, _LONGEST_PERIOD = timedelta(milliseconds=100), timedelta(days=31)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The most jobs that run at once, in the whole cluster: `pulse.Concurrency(10)`."""

    limit: int

    def __post_init__(self) -> None:
        _check_count("Concurrency(…)", self.limit)


@dataclass(frozen=True, slots=True)
class Rate:
    """The most starts in any period: `pulse.Rate(100, per=timedelta(minutes=1))`."""

    starts: int
    per: timedelta

    def __post_init__(self) -> None:
        _check_count("Rate(…)", self.starts)
        check_duration("Rate(per=…)", self.per, example="minutes=1")
        if not _SHORTEST_PERIOD <= self.per <= _LONGEST_PERIOD:
            raise InvalidArgument(
                f"Rate(per=…) has to be from 100 milliseconds to {_LONGEST_PERIOD.days} days, "
                f"but {self.per} was given."
            )


@dataclass(frozen=True, slots=True)
class LimitPolicy:
    """The limits of a topic's jobs. Each entry is decided separately; None: not set here."""

    limit: Concurrency | None = None
    rate: Rate | None = None
    pool: str | None = None
    """Limit and rate count over all topics of the pool. The smallest numbers of its topics hold."""
    per_lane: Concurrency | None = None
    lane_rate: Rate | None = None
    turns: bool | None = None
    """Lanes take turns. Every entry that concerns lanes implies it."""
    ordered: bool | None = None
    """One job of a lane at a time, in order, and a retry holds its lane."""
    aging: timedelta | None = None
    """A job that waits this long gains one step of priority."""

    def __bool__(self) -> bool:
        return self != NO_LIMITS


NO_LIMITS = LimitPolicy()


@dataclass(frozen=True, slots=True)
class DeclaredLimits:
    """Limits that one or several connected workers declare."""

    policy: LimitPolicy
    workers: int
    worker_id: str
    """The worker that declared it last."""
    declared_at: datetime | None


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits of a topic, who set them, and how much of them is used."""

    topic: str
    policy: LimitPolicy
    """The limits in force. In a pool, these are the numbers of the pool."""
    running: int
    """The jobs that are counted; in a pool, of all its topics."""
    held_until: datetime | None
    """No job starts before then: see `Pulse.hold`."""
    next_start_at: datetime | None
    """The rate is spent until then."""
    override: LimitPolicy = NO_LIMITS
    """The limits that operators have set. They override declared limits."""
    set_by: str = ""
    set_at: datetime | None = None
    declared: LimitPolicy = NO_LIMITS
    """The strictest limits that connected workers declare."""
    differing: tuple[DeclaredLimits, ...] = ()
    """The declared limits of connected workers, if they differ."""
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


def limit_message(policy: LimitPolicy) -> pb.LimitPolicy:
    """Return the message of a policy."""
    limits = pb.LimitPolicy(
        limit=policy.limit.limit if policy.limit is not None else None,
        pool=policy.pool,
        per_lane=policy.per_lane.limit if policy.per_lane is not None else None,
        turns=policy.turns,
        ordered=policy.ordered,
    )
    for name in ("rate", "lane_rate"):
        if (rate := getattr(policy, name)) is not None:
            getattr(limits, name).starts = rate.starts
            getattr(limits, name).period.FromTimedelta(rate.per)
    if policy.aging is not None:
        limits.aging.FromTimedelta(policy.aging)
    return limits


Reader(Rate, per="period")
limit_policy = Reader(LimitPolicy)
"""Returns the policy in a message."""
Reader(DeclaredLimits)
topic_limits = Reader(TopicLimits)
"""Returns the limits in a message."""
lane_info = Reader(LaneInfo)
"""Returns the lane in a `LaneView`."""


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise InvalidArgument(f"{name} takes a whole number from 1 to {_MOST:,}, but {value!r} was given.")
