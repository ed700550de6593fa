"""Reads the numbers of a form."""

from __future__ import annotations

import re

import pulse
from pulse_ui.web.forms import Form

# pulsed says what is too large for it; this is only what can be sent at all.
_WHOLE_NUMBER = re.compile(r"[-+]?[0-9]{1,18}")


def whole_number(form: Form, field: str, name: str) -> int | None:
    """Return the number of a field; None if it is empty. Raises InvalidArgument for what is no number."""
    text = form.text(field)
    if not text:
        return None
    if not _WHOLE_NUMBER.fullmatch(text):
        raise pulse.InvalidArgument(f"{name}: {text[:40]!r} is not a whole number.")
    return int(text)
