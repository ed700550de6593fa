"""Unique jobs: at most one job of a topic and key waits, or lives. ADR-0066"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple, TypeVar

from pulse_server.base.bounds import MAX_UNIQUE_KEY_LENGTH, check_text
from pulse_server.base.errors import InvalidArgument

# A debounce without a bound may delay the job by at most this many periods.
LONGEST_IN_PERIODS = 10
# A shorter period has no effect: a submit takes longer.
SHORTEST_PERIOD = timedelta(milliseconds=1)
# All users of the topic share the key: one user must not block the jobs of another for years.
LONGEST_PERIOD = timedelta(days=366)


Word = TypeVar("Word", bound=StrEnum)


class Scope(StrEnum):
    """Until when a job holds its key."""

    WAITING = "waiting"  # until its first start
    LIVE = "live"  # until it is finished


class OnConflict(StrEnum):
    """How to handle a new job whose key another job holds."""

    SKIP = "skip"
    REPLACE = "replace"
    DEBOUNCE = "debounce"
    THROTTLE = "throttle"


class Unique(NamedTuple):
    """The key of a job, and how to handle another job with the same key."""

    key: str
    scope: Scope = Scope.WAITING
    on_conflict: OnConflict = OnConflict.SKIP
    period: timedelta | None = None
    """The period of a debounce or a throttle."""
    longest: timedelta | None = None
    """How long a debounce may delay the job, from its first submit on."""

    @property
    def replaces(self) -> bool:
        return self.on_conflict in (OnConflict.REPLACE, OnConflict.DEBOUNCE)

    @property
    def throttle(self) -> timedelta | None:
        return self.period if self.on_conflict is OnConflict.THROTTLE else None


class UniqueHolder(NamedTuple):
    """The job that holds a unique key."""

    job_id: str
    key: str


def check_unique(
    key: str,
    scope: str,
    on_conflict: str,
    period: timedelta | None,
    longest: timedelta | None,
    *,
    starts_at_once: bool,
) -> Unique:
    """Return the requested rule. Raises InvalidArgument for impossible or contradictory options."""
    if not key:
        raise InvalidArgument("unique.key", "is empty: name what there should be one job for.")
    check_text(key, "unique.key", MAX_UNIQUE_KEY_LENGTH)
    unique = Unique(
        key,
        _one_of(Scope, scope or Scope.WAITING, "unique.scope"),
        _one_of(OnConflict, on_conflict or OnConflict.SKIP, "unique.on_conflict"),
        period,
        longest,
    )
    mode = unique.on_conflict
    has_period = mode in (OnConflict.DEBOUNCE, OnConflict.THROTTLE)
    if has_period and period is None:
        raise InvalidArgument("unique.period", f"is missing: {mode} needs one.")
    if period is not None:
        if not has_period:
            raise InvalidArgument("unique.period", f"belongs to debounce and throttle, not to {mode}.")
        _check_period(period, "unique.period")
    if unique.replaces and unique.scope is not Scope.WAITING:
        raise InvalidArgument(
            "unique.on_conflict",
            f"is {mode}, which needs the scope waiting: a job that runs cannot be replaced.",
        )
    if mode is not OnConflict.DEBOUNCE:
        if longest is not None:
            raise InvalidArgument("unique.longest", f"belongs to debounce, not to {mode}.")
        return unique
    assert period is not None
    if not starts_at_once:
        raise InvalidArgument(
            "unique.on_conflict", "is debounce, which sets when the job starts: give no delay and no run_at."
        )
    if longest is None:
        longest = min(period * LONGEST_IN_PERIODS, LONGEST_PERIOD)
    else:
        _check_period(longest, "unique.longest")
        if longest < period:
            raise InvalidArgument("unique.longest", "is below the period: a single submit waits for longer.")
    return unique._replace(longest=longest)


def _one_of(words: type[Word], given: str, field: str) -> Word:
    if given not in [word.value for word in words]:
        raise InvalidArgument(field, f"{given[:40]!r} is not known: use {', '.join(words)}.")
    return words(given)


def _check_period(period: timedelta, field: str) -> None:
    if period < SHORTEST_PERIOD:
        raise InvalidArgument(field, "is below a millisecond: give a longer one.")
    if period > LONGEST_PERIOD:
        raise InvalidArgument(
            field, f"is longer than {LONGEST_PERIOD.days} days: others may need a job with this key."
        )
