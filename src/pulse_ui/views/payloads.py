"""A job's payload as people read it: JSON laid out and lightly colored, text as text, bytes in hexadecimal.

Payloads are anybody's: what they hold becomes escaped text, and of a large one only the beginning is shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
from markupsafe import Markup, escape

from pulse_text import printable

SHOWN_AT_FIRST = 16 * 1024
"""Bytes of the payload. An open page is brought up to date every few seconds, payload and all."""
SHOWN_AT_MOST = 64 * 1024
"""Laid out within a tenth of a second here, and by the browser. Who wants more takes the file."""
_BYTES_AT_FIRST = 1024
_BYTES_AT_MOST = 16 * 1024
_BYTES_PER_LINE = 16
_DEEPEST = 24
"""Beyond it lines are not indented further: a megabyte of brackets would become a terabyte of blanks."""

# The text is JSON for certain when this reads it, so each part is found by how it begins. A string that was
# cut off has no end.
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]++|\\.)*+"?)|(?P<mark>[][{}:,])|(?P<word>[^\s"\][{}:,]++)|\s++', re.DOTALL
)
# Reads JSON without making anything of it, so a number of any size is one.
_CHECK = msgspec.json.Decoder(msgspec.Raw)
_OPENING = frozenset("[{")
_CLOSING = frozenset("]}")


@dataclass(frozen=True, slots=True)
class PayloadView:
    """What is shown of a payload."""

    kind: str
    """empty, JSON, text or binary."""
    size: int
    """Of the whole payload, in bytes."""
    markup: Markup
    shown: int
    """So many bytes are shown."""

    @property
    def is_cut(self) -> bool:
        return self.shown < self.size


def payload_view(payload: bytes, *, whole: bool = False) -> PayloadView:
    """Return the payload to be shown; `whole`: as much of it as a page can take."""
    size = len(payload)
    if not payload:
        return PayloadView("empty", 0, Markup(), 0)
    if not _is_text(payload):
        shown = payload[: _BYTES_AT_MOST if whole else _BYTES_AT_FIRST]
        return PayloadView("binary", size, escape(_hex_dump(shown)), len(shown))
    head = payload[: SHOWN_AT_MOST if whole else SHOWN_AT_FIRST].decode(errors="ignore")
    shown_size = len(head.encode())
    if _is_json(payload):
        return PayloadView("JSON", size, _laid_out(printable.in_json(head)), shown_size)
    return PayloadView("text", size, escape(printable.lines(head)), shown_size)


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return b"\x00" not in payload


def _is_json(payload: bytes) -> bool:
    try:
        _CHECK.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        # What is nested too deeply to be read is text: nobody reads it as anything else.
        return False
    return True


def _laid_out(document: str) -> Markup:
    """Return JSON, or its beginning, with one value on each line. Numbers and strings stay as written."""
    parts: list[str] = []
    tokens = [(found.lastgroup, found[0]) for found in _TOKEN.finditer(document) if found.lastgroup]
    depth = 0
    for position, (group, text) in enumerate(tokens):
        following = tokens[position + 1][1] if position + 1 < len(tokens) else ""
        if group == "string":
            parts.append(_span("json-name" if following == ":" else "json-string", text))
        elif group == "word":
            parts.append(_span("json-word" if text in ("true", "false", "null") else "json-number", text))
        elif text == ":":
            parts.append(": ")
        elif text == ",":
            parts.append(f",{_new_line(depth)}")
        elif text in _OPENING:
            depth += 1
            parts.append(text if following in _CLOSING else f"{text}{_new_line(depth)}")
        else:
            depth -= 1
            is_empty = position > 0 and tokens[position - 1][1] in _OPENING
            parts.append(text if is_empty else f"{_new_line(depth)}{text}")
    return Markup("".join(parts))


def _new_line(depth: int) -> str:
    return "\n" + "  " * min(depth, _DEEPEST)


def _span(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>'


def _hex_dump(content: bytes) -> str:
    return "\n".join(
        _hex_line(start, content[start : start + _BYTES_PER_LINE])
        for start in range(0, len(content), _BYTES_PER_LINE)
    )


def _hex_line(start: int, row: bytes) -> str:
    letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in row)
    return f"{start:06x}  {row.hex(' '):<{_BYTES_PER_LINE * 3}} {letters}"
