"""Text that users and workers wrote, made safe to print: nothing moves the cursor, reorders or hides text.

Escaping for HTML is left to the templates.
"""

from __future__ import annotations

import re

# Characters that have no width, change the direction of writing or break a line.
_INVISIBLE = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060\u2066-\u2069\ufeff"
_CONTROL = re.compile(f"[\\x00-\\x1f\\x7f-\\x9f{_INVISIBLE}]")
_CONTROL_BUT_LINES = re.compile(f"[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f{_INVISIBLE}]")
_NOT_IN_JSON = re.compile(f"[\\x7f-\\x9f{_INVISIBLE}]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def one_line(text: str) -> str:
    """Return the text on one line, every control character escaped."""
    return _CONTROL.sub(_escaped, text)


def lines(text: str) -> str:
    """Return the text with its lines and tabs, every other control character escaped."""
    if text.isprintable():  # nearly all that a page shows, and four times as fast as the expression
        return text
    return _CONTROL_BUT_LINES.sub(_escaped, text.replace("\r\n", "\n"))


def in_json(document: str) -> str:
    """Return the JSON with the invisible characters escaped that JSON itself allows."""
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def summary(error: str) -> str:
    """Return the most informative line of an error: the last of a traceback, else the first."""
    found = [line.strip() for line in error.splitlines() if line.strip()]
    if not found:
        return ""
    return one_line(found[-1] if found[0].startswith("Traceback ") else found[0])


def cause_first(error: str) -> str:
    """Return the summary with the cause that it names in front. For dead letters, which are grouped by it."""
    line = summary(error)
    outer, named, cause = line.rpartition(" [cause: ")
    return f"{cause[:-1]} (from {outer})" if named and cause.endswith("]") else line


def has_more(error: str) -> bool:
    """True if the error has more lines than its summary."""
    return len(error.strip().splitlines()) > 1


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character in _ESCAPES:
        return _ESCAPES[character]
    return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"
