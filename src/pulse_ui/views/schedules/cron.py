"""Cron expressions in words. pulsed decides when one fires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronsim import CronSim, CronSimError

from pulse.cron_expressions import read_expression
from pulse_ui.views.words import interval_words

_ALL_DATES = frozenset(range(1, 32))
_ANY_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def read_interval(expression: str) -> timedelta | None:
    """Return the interval of `@every 1h30m`; None for every other expression."""
    try:
        return read_expression(expression).interval or None
    except ValueError:
        return None


def cron_words(expression: str, zone: str = "UTC") -> str | None:
    """Return when the expression fires, such as "at 09:00 on Monday, in UTC"; None if it cannot be read."""
    try:
        read = read_expression(expression)
        if read.interval is not None:
            return interval_words(read.interval) if read.interval else None
        fields = read.fields.split()
        cron = CronSim(" ".join(fields), _ANY_MOMENT)
        if not cron.day_and and cron.days >= _ALL_DATES:
            # Every date fires, whatever the weekday. CronSim would name the weekday alone.
            cron = CronSim(" ".join([*fields[:2], "*", fields[3], "*"]), _ANY_MOMENT)
    except (ValueError, CronSimError, AssertionError):
        return None
    words = cron.explain()
    # "Every 15th minute of every hour" is the same in every zone.
    is_anywhere = fields[0].startswith("*") and fields[1:] == ["*"] * 4
    return f"{words[0].lower()}{words[1:]}" + ("" if is_anywhere else f", in {read.zone or zone}")
