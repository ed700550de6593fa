"""Unique jobs: at most one job of a topic and key waits, or lives."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from pulse.errors import InvalidArgument
from pulse.messages import check_duration, check_unicode

UniqueWhile: TypeAlias = Literal["waiting", "live"]
"""The jobs among which a key is unique: jobs not started yet, or all unfinished jobs."""
OnConflict: TypeAlias = Literal["skip", "replace", "debounce", "throttle"]
"""How to enqueue a job if another job holds its key."""

_LONGEST_KEY = 255  # characters, as the server allows
_LONGEST_PERIOD = timedelta(days=366)  # as the server allows


@dataclass(frozen=True, slots=True)
class Unique:
    """At most one job of a topic and key waits: `unique=pulse.Unique("shop-7")`, or `by="shop_id"`.

    `by` makes the key of one or several fields of the arguments. `while_="live"` counts jobs that run or are
    retried, too. If there is one, `on_conflict` decides: "skip" stores nothing and returns that job as a
    duplicate; "replace" gives it the new arguments and options; "debounce" does so and starts it once
    `period` has passed without a further enqueue, at most `longest` after the first (ten periods if not
    given); "throttle" is "skip", also within `period` after the last job was stored.
    """

    key: str | None = None
    _: KW_ONLY
    by: str | Sequence[str] | None = None
    while_: UniqueWhile = "waiting"
    on_conflict: OnConflict = "skip"
    period: timedelta | None = None
    longest: timedelta | None = None

    def __post_init__(self) -> None:
        _check_key(self.key, self.by)
        if self.while_ not in get_args(UniqueWhile):
            raise InvalidArgument(
                f"while_={self.while_!r} is not known: use {_listed(get_args(UniqueWhile))}."
            )
        if self.on_conflict not in get_args(OnConflict):
            raise InvalidArgument(
                f"on_conflict={self.on_conflict!r} is not known: use {_listed(get_args(OnConflict))}."
            )
        _check_times(self.while_, self.on_conflict, self.period, self.longest)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of `by`, sorted."""
        return (self.by,) if isinstance(self.by, str) else tuple(sorted(self.by or ()))

    def key_of(self, payload: bytes) -> str:
        """Return the key of a job with this payload. Raises InvalidArgument if it lacks a field of `by`."""
        if self.key is not None:
            return self.key
        values = _values(payload, self.fields)
        key = ",".join(f"{name}={_text(values[name])}" for name in self.fields)
        if len(key) <= _LONGEST_KEY:
            return key
        return f"sha256={hashlib.sha256(key.encode()).hexdigest()}"


def _check_key(key: object, by: object) -> None:
    if (key is None) == (by is None):
        raise InvalidArgument(
            "Give Unique a key, such as 'shop-7', or by, the fields of the arguments that make it: one of "
            "both."
        )
    if key is not None:
        if not isinstance(key, str) or not key:
            raise InvalidArgument(f"The key of Unique has to be a text that is not empty, not {key!r}.")
        check_unicode("The key of Unique", key)
        if len(key) > _LONGEST_KEY:
            raise InvalidArgument(
                f"The key of Unique has {len(key)} characters; {_LONGEST_KEY} are allowed at the most."
            )
        return
    names = (by,) if isinstance(by, str) else by
    if not isinstance(names, list | tuple) or not names or not all(n and isinstance(n, str) for n in names):
        raise InvalidArgument(f"by has to be the name of a field, or a list of names, not {by!r}.")


def _check_times(while_: str, on_conflict: str, period: object, longest: object) -> None:
    if on_conflict in ("replace", "debounce") and while_ != "waiting":
        raise InvalidArgument(
            f'on_conflict="{on_conflict}" needs while_="waiting": a job that runs cannot be replaced.'
        )
    has_period = on_conflict in ("debounce", "throttle")
    if has_period and period is None:
        raise InvalidArgument(f'on_conflict="{on_conflict}" needs a period, such as timedelta(seconds=30).')
    if period is not None:
        if not has_period:
            raise InvalidArgument(
                f'period belongs to on_conflict="debounce" and "throttle", not to "{on_conflict}".'
            )
        _check_period("period", period)
    if longest is not None:
        if on_conflict != "debounce":
            raise InvalidArgument(f'longest belongs to on_conflict="debounce", not to "{on_conflict}".')
        _check_period("longest", longest)
        if isinstance(period, timedelta) and isinstance(longest, timedelta) and longest < period:
            raise InvalidArgument(
                f"longest={longest} is below period={period}: one enqueue waits for longer."
            )


def _check_period(name: str, value: object) -> None:
    check_duration(name, value, example="seconds=30")
    assert isinstance(value, timedelta)
    if value > _LONGEST_PERIOD:
        raise InvalidArgument(
            f"{name} has to be at most {_LONGEST_PERIOD.days} days, but {value} was given: others may need a "
            "job with this key."
        )


def _values(payload: bytes, names: Sequence[str]) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(payload or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(
            f"The arguments have no fields, and Unique makes its key of {_listed(names)}: give it a key "
            "instead."
        )
    if missing := [name for name in names if name not in found]:
        raise InvalidArgument(
            f"The arguments have no field {missing[0]!r}, of which Unique makes its key. "
            f"They have {_listed(sorted(found)) or 'none'}; one that is left out for its default has to be "
            "given."
        )
    return found


def _text(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _listed(words: Sequence[str]) -> str:
    return ", ".join(repr(word) for word in words)
