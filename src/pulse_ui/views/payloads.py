"""Payloads and metadata of jobs as markup: JSON indented and colored, text unchanged, bytes in hexadecimal.

They are untrusted: they are escaped, and only the beginning of a large one is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from markupsafe import Markup, escape

from pulse_text import printable

SHOWN_AT_FIRST = 16 * 1024
"""Bytes of the payload. An open page refreshes every few seconds, payload included."""
SHOWN_AT_MOST = 64 * 1024
"""Formatted within a tenth of a second, here and in the browser. More is available as a download."""
_BYTES_AT_FIRST = 1024
_BYTES_AT_MOST = 16 * 1024
_BYTES_PER_LINE = 16
_DEEPEST = 24
"""The deepest indentation: a megabyte of brackets would become a terabyte of spaces."""

# Applied to valid JSON only, so each token is recognized by its first character. A string that was cut off
# has no end.
_TOKEN = re.compile(
    r'(?P<string>"(?:[^"\\]++|\\.)*+"?)|(?P<mark>[][{}:,])|(?P<word>[^\s"\][{}:,]++)|\s++', re.DOTALL
)
# Validates JSON without decoding it, so numbers of any size are accepted.
_CHECK = msgspec.json.Decoder(msgspec.Raw)
_OPENING = frozenset("[{")
_CLOSING = frozenset("]}")


@dataclass(frozen=True, slots=True)
class PayloadView:
    """The shown part of a payload."""

    kind: str
    """empty, JSON, text or binary."""
    size: int
    """Of the whole payload, in bytes."""
    markup: Markup
    shown: int
    """How many bytes are shown."""

    @property
    def is_cut(self) -> bool:
        return self.shown < self.size


def payload_view(payload: bytes, *, whole: bool = False) -> PayloadView:
    """Return the view of a payload; `whole`: up to the limit of a page."""
    size = len(payload)
    if not payload:
        return PayloadView("empty", 0, Markup(), 0)
    if not _is_text(payload):
        shown = payload[: _BYTES_AT_MOST if whole else _BYTES_AT_FIRST]
        return PayloadView("binary", size, escape(_hex_dump(shown)), len(shown))
    head = payload[: SHOWN_AT_MOST if whole else SHOWN_AT_FIRST].decode(errors="ignore")
    shown_size = len(head.encode())
    if _is_json(payload):
        return PayloadView("JSON", size, _formatted(printable.in_json(head)), shown_size)
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
        # JSON that is nested too deeply is shown as text.
        return False
    return True


def _formatted(document: str) -> Markup:
    """Return JSON, or its beginning, with one value per line. Numbers and strings are unchanged."""
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


_TRACE_ENTRIES = "pulse.trace"
"""The SDK lists the entries that it added in this entry."""
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


@dataclass(frozen=True, slots=True)
class MetadataView:
    given: tuple[tuple[str, str], ...]
    """The producer's own entries, by name."""
    trace: tuple[tuple[str, str], ...]
    """The entries of the trace context."""
    trace_id: str
    """Empty if there is none, or it is invalid."""


def own_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the producer's own entries, without the trace context."""
    carrying = _carrying(metadata)
    return {name: value for name, value in metadata.items() if name not in carrying}


def _carrying(metadata: Mapping[str, str]) -> set[str]:
    return {"traceparent", "tracestate", _TRACE_ENTRIES, *metadata.get(_TRACE_ENTRIES, "").split()}


def metadata_view(metadata: Mapping[str, str]) -> MetadataView:
    """Return the metadata in its two parts, as printable text."""
    carrying = _carrying(metadata)
    entries = sorted((name, value) for name, value in metadata.items() if name != _TRACE_ENTRIES)
    parent = _TRACE_PARENT.fullmatch(metadata.get("traceparent", ""))
    return MetadataView(
        tuple(_readable(entry) for entry in entries if entry[0] not in carrying),
        tuple(_readable(entry) for entry in entries if entry[0] in carrying),
        parent[1] if parent else "",
    )


def _readable(entry: tuple[str, str]) -> tuple[str, str]:
    name, value = entry
    return printable.one_line(name), printable.lines(value)
