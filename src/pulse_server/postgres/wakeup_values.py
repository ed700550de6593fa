"""Checks the values of a message between servers. Each raises ValueError.

Servers send none that fails. A value of another type or size would fail much later: in the stream of a
watcher, or in a statement that looks up a thousand claims.
"""

from __future__ import annotations

from datetime import UTC, datetime

_INT32 = 2**31 - 1
# The last second of the year 9999, as datetime has it.
_LAST_SECOND = 253_402_300_799
_TEXT_CHARACTERS = 1000


def text(value: object) -> str:
    if type(value) is not str or len(value) > _TEXT_CHARACTERS:
        raise ValueError("not a text, or a long one")
    value.encode()  # half of a pair of surrogates cannot be encoded
    return value


def optional_text(value: object) -> str | None:
    return None if value is None else text(value)


def whole(value: object, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= _INT32:
        raise ValueError("not a whole number, or out of range")
    return value


def optional_whole(value: object) -> int | None:
    return None if value is None else whole(value)


def priority(value: object) -> int:
    return whole(value, -_INT32 - 1)


def number(value: object, most: float) -> float:
    """A number whose distance from zero is at most `most`."""
    if not isinstance(value, (int, float)) or not abs(value) <= most:  # NaN compares as false
        raise ValueError("not a number, or out of range")
    return float(value)


def fraction(value: object) -> float:
    return number(value, 1.0)


def moment(value: object) -> datetime:
    seconds = number(value, _LAST_SECOND)
    if seconds < 0:
        raise ValueError("before 1970")
    return datetime.fromtimestamp(seconds, UTC)
