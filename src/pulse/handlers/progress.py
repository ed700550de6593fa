"""The progress that a handler reports, checked at the call.

A report only remembers; it never waits. The heartbeat thread sends the newest one in place of a
heartbeat, at most once a second, and the report of the attempt's end has the last one.
docs/figures.md#progress
"""

from __future__ import annotations

import math
import unicodedata
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

from pulse import payload
from pulse.errors import InvalidArgument

MAX_TEXT: Final = 200
MAX_CURSOR_BYTES: Final = 4 * 1024
# Control characters, halves of pairs, and separators of lines.
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


class Kept(Enum):
    """The cursor of a report without a cursor: the last one is kept."""

    KEPT = "kept"

    def __repr__(self) -> str:
        return "KEPT"


KEPT: Final = Kept.KEPT
AnyCursor = Any | Literal[Kept.KEPT]


class Reported(NamedTuple):
    """One report. Numbers grow within an attempt."""

    fraction: float | None
    text: str
    cursor: bytes | None
    """JSON; empty: none. None: as it was before the attempt."""
    number: int


def check_report(fraction: object, text: object, cursor: AnyCursor, last: Reported | None) -> Reported:
    """Return the report. Raises InvalidArgument for values that cannot be stored or shown."""
    last_cursor, number = (None, 0) if last is None else (last.cursor, last.number)
    return Reported(
        None if fraction is None else _check_fraction(fraction),
        _check_text(text),
        last_cursor if cursor is KEPT else _encode_cursor(cursor),
        number + 1,
    )


def _check_fraction(fraction: object) -> float:
    if type(fraction) is float and 0.0 <= fraction <= 1.0:  # handlers call this in their loops
        return fraction
    try:
        number = float("nan") if isinstance(fraction, str | bytes | bool) else float(fraction)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if math.isfinite(number) and 0 <= number <= 1:
        return number
    raise InvalidArgument(
        f"The progress {_short(fraction)} is not a fraction of the work: give a number from 0 to 1, such as "
        "done / total, or None if it is not known."
    )


def _check_text(text: object) -> str:
    if type(text) is str and len(text) <= MAX_TEXT and text.isprintable():
        return text
    if not isinstance(text, str):
        raise InvalidArgument(f"The text of a progress is of type {type(text).__name__}: give a str.")
    if len(text) > MAX_TEXT:
        raise InvalidArgument(
            f"The text of a progress has {len(text)} characters; {MAX_TEXT} are allowed at the most. "
            "Log what is longer."
        )
    if any(unicodedata.category(one) in _UNPRINTABLE for one in text):
        raise InvalidArgument(
            f"The text of a progress, {_short(text)}, has line breaks or control characters: it is shown in "
            "one line."
        )
    return text


def _encode_cursor(cursor: object) -> bytes:
    if isinstance(cursor, bytes):
        raise InvalidArgument("The cursor is of type bytes, which JSON cannot hold: decode it to a str.")
    try:
        data = payload.encode(cursor)
    except InvalidArgument as error:
        raise InvalidArgument(f"The cursor cannot be stored. {error.message}") from None
    if len(data) > MAX_CURSOR_BYTES:
        raise InvalidArgument(
            f"The cursor has {len(data)} bytes as JSON; {MAX_CURSOR_BYTES} are allowed at the most. Store "
            "where the work continues, such as an id or an offset, and not the work itself."
        )
    return data


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
