"""Limits in force: how many jobs of a topic run at once or start in a period, and whose turn it is.

domain/topic_settings.py decides which limits are in force. ADR-0064
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from pulse.topic_settings import Entries
from pulse_server.base.errors import InvalidArgument

MAX_WEIGHT = 1000
LONGEST_HOLD = timedelta(days=365)
# The longest hold by a worker, for an API that refuses calls until the next day's quota.
LONGEST_HOLD_OF_WORKERS = timedelta(days=1)


class HeldUntil(NamedTuple):
    """None: the topic is not held."""

    until: datetime | None


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
    """A limited topic: the limits in force, and its state."""

    topic: str
    in_force: Entries
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
    def is_laned(self) -> bool:
        return "turns" in self.in_force

    @property
    def why_full(self) -> str:
        """The clause that states which limit lets no job start now; empty if none does."""
        if self.closed_until is not None:
            return "is held"
        if self.next_start_at is not None:
            return "has spent its rate"
        running, pool = self.in_force.get("running"), self.in_force.get("pool")
        if running is not None and self.running >= running:
            return "is at its limit" if pool is None else f"waits for its pool {pool}"
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
    """Its own, instead of per_lane."""


def check_weight(weight: int) -> int:
    if not 1 <= weight <= MAX_WEIGHT:
        raise InvalidArgument("weight", f"is {weight}: it must be from 1 to {MAX_WEIGHT:,}.")
    return weight
