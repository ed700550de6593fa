"""Cron expressions as pulsed refuses them. `pulse.cron_expressions` reads them."""

from __future__ import annotations

from datetime import datetime

from cronsim import CronSim, CronSimError

from pulse import cron_expressions
from pulse.cron_expressions import FIELDS, CronExpression
from pulse_server.domain.errors import InvalidArgument


def read_expression(text: str) -> CronExpression:
    """Read the form of the expression. Raises InvalidArgument; the fields themselves are not checked."""
    try:
        return cron_expressions.read_expression(text)
    except ValueError as error:
        shown = f"{stripped[:80]!r} " if (stripped := text.strip()) else ""
        raise InvalidArgument("cron", f"{shown}{error}") from None


def explain_bad_field(fields: str, name: str) -> str:
    """Describe the problem of a field that cronsim refused, and its range, in the SDK's words."""
    given = dict(zip(FIELDS, fields.split(), strict=True))[name]
    if name == "day-of-month" and _is_good(f"* * {given} * *"):
        return "has a bad day-of-month field: these months have no such day."
    least, most = FIELDS[name]
    return (
        f"has a bad {name} field, {given[:40]!r}: it takes {least} to {most}, *, ranges such as 1-5, "
        "steps such as */15, and lists of these."
    )


def _is_good(fields: str) -> bool:
    try:
        CronSim(fields, datetime(2000, 1, 1))
    except CronSimError:
        return False
    return True
