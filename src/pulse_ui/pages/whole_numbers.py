"""Reads the numbers of a form."""

from __future__ import annotations

import re

import pulse
from pulse_ui.views import limits
from pulse_ui.web.forms import Form

# What can be sent at all.
_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]{1,18}")


def whole_number(form: Form, field: str, name: str, *, between: tuple[int, int] | None = None) -> int | None:
    """Return the number of a field; None if it is empty. Raises InvalidArgument for what is no number.

    `between` is for actions that go on in the background: pulsed would refuse it when nobody looks any more.
    """
    text = form.text(field)
    if not text:
        return None
    if not _WHOLE_NUMBER.fullmatch(text):
        raise pulse.InvalidArgument(f"{name}: {text[:40]!r} is not a whole number.")
    number = int(text)
    if between is not None and not between[0] <= number <= between[1]:
        raise pulse.InvalidArgument(f"{name} has to be a whole number from {between[0]} to {between[1]}.")
    return number


def further_attempts(form: Form) -> int | None:
    """Return how many attempts a retry is to add; None: as many as pulsed gives."""
    return whole_number(form, "attempts", "Further attempts", between=limits.FURTHER_ATTEMPTS)


def required_number(form: Form, field: str, name: str, *, between: tuple[int, int] | None = None) -> int:
    """Return the number of a field. Raises InvalidArgument for what is no number, or empty."""
    number = whole_number(form, field, name, between=between)
    if number is None:
        raise pulse.InvalidArgument(f"{name} is empty: give a whole number.")
    return number
