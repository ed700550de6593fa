"""Text that users and workers wrote, made fit to be read: nothing in it reorders or hides what is around it.

Escaping for HTML is not done here: templates do that. The CLI has a list of its own, text/printable.py:
neither imports the other, and a terminal does not hide all that a browser does.
"""

from __future__ import annotations

import re

# Control characters, and those that turn the direction of writing or have no width.
_REORDERING = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ufeff"
_CONTROL = re.compile(f"[\\x00-\\x1f\\x7f-\\x9f{_REORDERING}]")
_CONTROL_BUT_LINES = re.compile(f"[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f{_REORDERING}]")
_NOT_IN_JSON = re.compile(f"[\\x7f-\\x9f{_REORDERING}]")
_NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def one_line(text: str) -> str:
    """Return the text on one line, every control character written out."""
    return _CONTROL.sub(_written_out, text)


def lines(text: str) -> str:
    """Return the text with its lines and tabs, every other control character written out."""
    return _CONTROL_BUT_LINES.sub(_written_out, text.replace("\r\n", "\n"))


def in_json(document: str) -> str:
    """Return the JSON with those characters escaped that JSON allows but nobody would see."""
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def summary(error: str) -> str:
    """Return the line of an error that says most: the last of a traceback, else the first."""
    found = [line.strip() for line in error.splitlines() if line.strip()]
    if not found:
        return ""
    return one_line(found[-1] if found[0].startswith("Traceback ") else found[0])


def has_more(error: str) -> bool:
    """True if the error says more than its summary."""
    return len(error.strip().splitlines()) > 1


def _written_out(found: re.Match[str]) -> str:
    character = found[0]
    if character in _NAMES:
        return _NAMES[character]
    return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"
