"""Limits: how many jobs of a topic run at once or start in a period, and whose turn it is.

Each entry of a policy is decided separately. An operator's entry wins over the entries that
connected workers declare. Of declared entries the strictest holds. ADR-0064, ADR-0065
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from pulse_server.domain import bounds
from pulse_server.domain.errors import InvalidArgument, PulseError
from pulse_server.domain.jobs import ClaimedJob, Submitted

MAX_LIMIT = 1_000_000
MAX_STARTS = 1_000_000
MAX_WEIGHT = 1000
# A slice of a period is a twentieth of it, and at least as long as a claim takes.
SHORTEST_PERIOD = timedelta(milliseconds=100)
LONGEST_PERIOD = timedelta(days=31)
LONGEST_AGING = timedelta(days=365)
LONGEST_HOLD = timedelta(days=365)
# The longest hold by a worker, for an API that refuses calls until the next day's quota.
LONGEST_HOLD_OF_WORKERS = timedelta(days=1)


class HeldUntil(NamedTuple):
    """None: the topic is not held."""

    until: datetime | None


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `starts` starts in any period of this length."""

    starts: int
    period: timedelta

    def __str__(self) -> str:
        return f"{self.starts} in {self.period}"


@dataclass(frozen=True, slots=True)
class LimitPolicy:
    """The entries of a policy. A None is decided elsewhere."""

    limit: int | None = None
    """How many jobs run at once, in the whole cluster."""
    rate: Rate | None = None
    pool: str | None = None
    """The limit and the rate count over all topics of the pool."""
    per_lane: int | None = None
    lane_rate: Rate | None = None
    turns: bool | None = None
    """Lanes take turns. Implied by every other entry about lanes."""
    ordered: bool | None = None
    """A job that is tried again holds its lane."""
    aging: timedelta | None = None
    """The waiting time that is worth one step of priority."""

    @property
    def is_empty(self) -> bool:
        """Whether the policy limits nothing: it has no limit, no rate and no lanes."""
        return self.limit is None and self.rate is None and not self.is_laned

    @property
    def is_laned(self) -> bool:
        lanes = (self.per_lane, self.lane_rate, self.aging)
        return bool(self.turns or self.ordered) or any(entry is not None for entry in lanes)

    @property
    def entries(self) -> dict[str, str]:
        """The entries that are set, as the log shows them."""
        set_here = {name: getattr(self, name) for name in LIMIT_ENTRIES}
        return {name: str(entry) for name, entry in set_here.items() if entry is not None}

    def over(self, other: LimitPolicy) -> LimitPolicy:
        """This policy, with the other policy's entries where this one has none."""
        return LimitPolicy(
            *(
                getattr(other, name) if getattr(self, name) is None else getattr(self, name)
                for name in LIMIT_ENTRIES
            )
        )

    def without(self, names: Collection[str]) -> LimitPolicy:
        return replace(self, **dict.fromkeys(names))


LIMIT_ENTRIES = tuple(field.name for field in fields(LimitPolicy))
NO_LIMIT_POLICY = LimitPolicy()


def strictest(policies: Iterable[LimitPolicy]) -> LimitPolicy:
    """The strictest value of each entry. No pool or aging is stricter: the last one wins."""
    held, rates, lane_rates = NO_LIMIT_POLICY, list[Rate](), list[Rate]()
    for policy in policies:
        held = LimitPolicy(
            limit=_least(held.limit, policy.limit),
            pool=held.pool if policy.pool is None else policy.pool,
            per_lane=_least(held.per_lane, policy.per_lane),
            turns=held.turns or policy.turns,
            ordered=held.ordered or policy.ordered,
            aging=held.aging if policy.aging is None else policy.aging,
        )
        rates += [policy.rate] if policy.rate else []
        lane_rates += [policy.lane_rate] if policy.lane_rate else []
    return replace(held, rate=_within_all(rates), lane_rate=_within_all(lane_rates))


def _least(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


def _within_all(rates: Sequence[Rate]) -> Rate | None:
    """A rate that exceeds none of the rates, in any of their periods. 2/s and 60/min are 2 per 2 s.

    It has the smallest number of starts. A rate with n times as many starts, rounded down, permits
    that number n times in its period. So the new period is at least an nth of that period.
    """
    if not rates:
        return None
    starts = min(rate.starts for rate in rates)
    return Rate(starts, max(-(-rate.period // (rate.starts // starts)) for rate in rates))


class LimitedClaims(NamedTuple):
    """The jobs that a claim of limited topics took, and the seconds until a topic's next start, if
    known. Zero: more jobs may start at once. Infinity: once a run has ended."""

    jobs: Sequence[ClaimedJob]
    next_starts: Mapping[str, float]


class LimitedHandover(NamedTuple):
    """The answers for the stored jobs, in order, and the claims made by the same statement."""

    answers: Sequence[Submitted | PulseError]
    claims: LimitedClaims


class Repaired(NamedTuple):
    """The counters that a sweep corrected. Not zero: someone changed rows, or there is a bug."""

    pools: int
    lanes: int


class OpenTransaction(NamedTuple):
    """A transaction that has to end before a change of limits comes into force."""

    pid: int | None
    application: str | None
    user: str | None
    gid: str | None
    """The name of a prepared transaction, which belongs to no session."""
    number: str = ""
    """Of the transaction: a session has another one later."""

    def __str__(self) -> str:
        if self.pid is None:
            return f"the prepared transaction {self.gid!r}"
        said = [self.application or "", f"user {self.user}" if self.user else ""]
        return f"pid {self.pid} ({', '.join(filter(None, said))})" if any(said) else f"pid {self.pid}"


def pending(holders: Sequence[OpenTransaction]) -> str:
    """The clause that states when a change comes into force."""
    if not holders:
        return "in force once another transaction, which has jobs of the topic locked, has ended"
    have = "has" if len(holders) == 1 else "have"
    return f"in force once {' and '.join(map(str, holders))} {have} ended"


@dataclass(frozen=True, slots=True)
class Limits:
    """A limited topic: the policy in force, and its state."""

    topic: str
    policy: LimitPolicy
    running: int
    """Over all topics of the pool, if there is one."""
    closed_until: datetime | None = None
    """Held: no job starts before then."""
    next_start_at: datetime | None = None
    """The rate is spent until then."""
    started: int = 0
    """The starts that the rate counts now."""
    lanes_are_full: bool = False
    """Jobs stand in lanes, and no lane may start one: by its limit, its rate, or its order."""

    @property
    def why_full(self) -> str:
        """The clause that states which limit lets no job start now; empty if none does."""
        if self.closed_until is not None:
            return "is held"
        if self.next_start_at is not None:
            return "has spent its rate"
        if self.policy.limit is not None and self.running >= self.policy.limit:
            return "is at its limit" if self.policy.pool is None else f"waits for its pool {self.policy.pool}"
        return "has no lane that may start a job" if self.lanes_are_full else ""


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane and its state. `waiting` counts to a thousand."""

    lane: str
    waiting: int
    running: int
    oldest: datetime | None
    """When the next job was submitted."""
    next_start_at: datetime | None = None
    weight: int = 1
    limit: int | None = None
    """Its own, instead of the policy's."""


def check_policy(policy: LimitPolicy, field: str) -> LimitPolicy:
    """Raises InvalidArgument, which names the entry."""
    for name in ("limit", "per_lane"):
        if (number := getattr(policy, name)) is not None and not 1 <= number <= MAX_LIMIT:
            raise InvalidArgument(f"{field}.{name}", f"is {number}: it must be from 1 to {MAX_LIMIT:,}.")
    for name in ("rate", "lane_rate"):
        if (rate := getattr(policy, name)) is not None:
            _check_rate(rate, f"{field}.{name}")
    if policy.aging is not None and not timedelta(0) < policy.aging <= LONGEST_AGING:
        raise InvalidArgument(
            f"{field}.aging",
            f"must be above zero and at most {LONGEST_AGING.days} days: a duration such as 5 min.",
        )
    if policy.pool is not None:
        check_pool(policy.pool, f"{field}.pool")
        if policy.limit is None and policy.rate is None:
            raise InvalidArgument(
                f"{field}.pool", "has neither a limit nor a rate to share: set one of them."
            )
    if policy.ordered and policy.per_lane not in (None, 1):
        raise InvalidArgument(
            f"{field}.ordered",
            f"needs one job of a lane at a time, and per_lane is {policy.per_lane}: make it 1.",
        )
    return policy


def check_pool(pool: str, field: str) -> str:
    if not pool:
        raise InvalidArgument(field, "is empty: name what its topics share, such as 'gpu'.")
    return bounds.check_topic(pool, field)


def _check_rate(rate: Rate, field: str) -> None:
    if not 1 <= rate.starts <= MAX_STARTS:
        raise InvalidArgument(f"{field}.starts", f"is {rate.starts}: it must be from 1 to {MAX_STARTS:,}.")
    if not SHORTEST_PERIOD <= rate.period <= LONGEST_PERIOD:
        raise InvalidArgument(
            f"{field}.period", f"must be from 100 ms to {LONGEST_PERIOD.days} days: a duration such as 1 min."
        )


def check_weight(weight: int) -> int:
    if not 1 <= weight <= MAX_WEIGHT:
        raise InvalidArgument("weight", f"is {weight}: it must be from 1 to {MAX_WEIGHT:,}.")
    return weight
