"""Text of others on a terminal: an error or a topic must not move the cursor or change colours."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NOT_IN_JSON = re.compile(r"[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def one_line(text: str) -> str:
    """Return the text on one line, every control character written out: for cells and plain fields."""
    return _CONTROL.sub(_written_out, text)


def lines(text: str) -> str:
    """Return the text with its lines and tabs, every other control character written out."""
    return _CONTROL_BUT_LINES.sub(_written_out, text.replace("\r\n", "\n"))


def summary(text: str) -> str:
    """Return the line of an error that says most: the last of a traceback, else the first."""
    found = [line.strip() for line in text.splitlines() if line.strip()]
    if not found:
        return ""
    is_traceback = found[0].startswith("Traceback ")
    return one_line(found[-1] if is_traceback else found[0])


def in_json(document: str) -> str:
    """Return the JSON with the control characters escaped that JSON itself allows."""
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


_NAMES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _written_out(found: re.Match[str]) -> str:
    character = found[0]
    if character in _NAMES:
        return _NAMES[character]
    return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"
