"""The forms of limits and lanes: fields become arguments of the SDK. An empty field is reset."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pulse
from pulse_text.rates import parse_rate
from pulse_text.times import format_exact, parse_duration
from pulse_ui.views import bounds
from pulse_ui.views.topic_limits import ENTRIES

_SHOWN = 40  # characters of a wrong value
_SWITCHES = {"yes": True, "no": False}


def read_all(**readers: Callable[[], Any]) -> dict[str, Any]:
    """Return what the readers of a form return. Raises InvalidArgument with the problems of all fields."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, read in readers.items():
        try:
            values[name] = read()
        except pulse.InvalidArgument as error:
            problems.append(str(error))
    if problems:
        raise pulse.InvalidArgument(" ".join(problems))
    return values


def read_limits(text_of: Callable[[str], str]) -> dict[str, Any]:
    """Return all entries of a form: values, or "default" where nothing was entered."""
    return read_all(**{name: partial(_read, name, title, text_of(name)) for name, title in ENTRIES})


def read_hold(text: str) -> timedelta:
    """Return for how long to hold a topic."""
    if not text:
        raise pulse.InvalidArgument("Hold: enter for how long, such as 2m.")
    span = _duration("Hold", text)
    if span > bounds.LONGEST_HOLD:
        most = format_exact(bounds.LONGEST_HOLD)
        raise pulse.InvalidArgument(f"Hold: {text[:_SHOWN]} is longer than {most}. Pause the topic instead.")
    return span


def read_lane_limit(text: str) -> pulse.Concurrency | None:
    """Return the limit of one lane. None: as for the other lanes."""
    return pulse.Concurrency(_count("Limit", text, bounds.MOST_RUNNING)) if text else None


def read_weight(text: str) -> int | None:
    """Return the weight of one lane. None: as for the other lanes."""
    return _count("Weight", text, bounds.MOST_WEIGHT) if text else None


def _read(name: str, title: str, text: str) -> Any:
    if text.lower() in ("", "default"):
        return "default"
    match name:
        case "limit" | "per_lane":
            return pulse.Concurrency(_count(title, text, bounds.MOST_RUNNING))
        case "rate" | "lane_rate":
            return _rate(title, text)
        case "turns" | "ordered":
            if text not in _SWITCHES:
                raise pulse.InvalidArgument(f"{title}: {text[:_SHOWN]!r} is neither yes nor no.")
            return _SWITCHES[text]
        case "aging":
            return _duration(title, text)
    return text


def _count(title: str, text: str, most: int) -> int:
    # Longer ones are not even converted.
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and 1 <= int(text) <= most):
        raise pulse.InvalidArgument(f"{title}: {text[:_SHOWN]!r} is not a whole number from 1 to {most:,}.")
    return int(text)


def _rate(title: str, text: str) -> pulse.Rate:
    try:
        starts, period = parse_rate(text)
    except ValueError as error:
        raise pulse.InvalidArgument(f"{title}: {error}") from None
    try:
        return pulse.Rate(starts, per=period)
    except pulse.InvalidArgument:
        raise pulse.InvalidArgument(
            f"{title}: {text[:_SHOWN]!r} is out of bounds: from 1 to {bounds.MOST_RUNNING:,} starts, in "
            "100 milliseconds to 31 days."
        ) from None


def _duration(title: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise pulse.InvalidArgument(f"{title}: {error}") from None
