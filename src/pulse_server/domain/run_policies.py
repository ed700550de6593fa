"""Run policies: how the jobs of a topic are retried, and how long one attempt may take.

Each entry of a policy is decided separately. An operator's entry wins over an entry that the code
of a worker declares, and a declared entry wins over the settings of the server.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta

from pulse_server.domain import bounds
from pulse_server.domain.errors import InvalidArgument

MAX_FACTOR = 100
MAX_CRASHES = 1000
# Without a bound a job could snooze forever, for an event that never comes.
MAX_SNOOZES = 1000
MAX_DECLARED = 1000  # topics of one worker


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays between attempts: `first`, then each `factor` times the last, at most `longest`.

    Each is drawn at random from the range of `jitter` around it.
    """

    first: timedelta
    factor: float
    longest: timedelta
    jitter: float


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """The entries of a policy. A None is decided elsewhere."""

    backoff: Backoff | None = None
    """The settings have a default. Without settings: the square of the attempts, in seconds."""
    max_attempts: int | None = None
    """For jobs submitted without a number."""
    timeout: timedelta | None = None
    """The time limit of one attempt. None at every level: no limit."""
    max_crashes: int | None = None
    """How many attempts may end in a lost lease."""

    @property
    def is_empty(self) -> bool:
        return self == NO_RUN_POLICY

    @property
    def entries(self) -> dict[str, str]:
        """The entries that are set, as the log shows them."""
        set_here = {name: getattr(self, name) for name in RUN_ENTRIES}
        return {name: str(entry) for name, entry in set_here.items() if entry is not None}

    def over(self, other: RunPolicy) -> RunPolicy:
        """This policy, with the other policy's entries where this one has none."""
        return RunPolicy(
            *(
                getattr(other, name) if getattr(self, name) is None else getattr(self, name)
                for name in RUN_ENTRIES
            )
        )

    def without(self, names: Collection[str]) -> RunPolicy:
        return replace(self, **dict.fromkeys(names))


RUN_ENTRIES = tuple(field.name for field in fields(RunPolicy))
NO_RUN_POLICY = RunPolicy()


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The run policy of a topic, by author."""

    override: RunPolicy
    """Set by an operator."""
    declared: RunPolicy
    """Declared by the code of a worker."""

    @property
    def effective(self) -> RunPolicy:
        return self.override.over(self.declared)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A run policy that the code of a worker declares for a topic."""

    topic: str
    run: RunPolicy
    by: str = ""
    """The worker."""
    at: datetime | None = None


def check_backoff(backoff: Backoff, field: str) -> Backoff:
    check_positive(backoff.first, f"{field}.first")
    bounds.check_delay(backoff.longest, f"{field}.longest")
    if backoff.longest < backoff.first:
        raise InvalidArgument(f"{field}.longest", "is shorter than first: make it at least as long.")
    if not 1 <= backoff.factor <= MAX_FACTOR:
        raise InvalidArgument(f"{field}.factor", f"is {backoff.factor:g}: it must be from 1 to {MAX_FACTOR}.")
    if not 0 <= backoff.jitter <= 1:
        raise InvalidArgument(f"{field}.jitter", f"is {backoff.jitter:g}: it must be from 0 to 1.")
    return backoff


def check_timeout(timeout: timedelta, field: str) -> timedelta:
    return check_positive(timeout, field)


def check_max_crashes(max_crashes: int, field: str) -> int:
    if not 1 <= max_crashes <= MAX_CRASHES:
        raise InvalidArgument(field, f"is {max_crashes}: it must be from 1 to {MAX_CRASHES}.")
    return max_crashes


def check_positive(span: timedelta, field: str) -> timedelta:
    if span <= timedelta(0):
        raise InvalidArgument(field, "is missing or not above zero: give a duration such as 2 s.")
    return bounds.check_delay(span, field)
