"""Values as pages show them: numbers, durations, moments in a zone, payloads. static/times.js does the same.

Payloads and metadata are untrusted: JSON is indented and colored, text unchanged, bytes in hexadecimal. All
are escaped, and only the beginning of a large one is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import msgspec
from markupsafe import Markup, escape

from pulse import HeldJob, JobInfo, JobStatus
from pulse_text import printable
from pulse_text.jobs import summary

NOTHING = "–"
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def count(number: int | float) -> str:
    """Return a number with thousands separators: 12,345."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def short_count(number: int | float) -> str:
    """Return a number in about three digits: 12.3k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            scaled = number / (1e3 if letter == "k" else size)
            return f"{scaled:.0f}{letter}" if scaled >= 100 else f"{scaled:.1f}".removesuffix(".0") + letter
    return count(number)


def mebibytes(size: int) -> str:
    """Return a size in MiB or GiB: 212 MiB, 1.4 GiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def percent(share: float | None) -> str:
    """Return a share in percent: 0.4%, 12%; never 0% for a share above 0."""
    if share is None:
        return NOTHING
    if 0 < share < 0.001:
        return "< 0.1%"
    if share < 0.0995:
        return f"{share * 100:.1f}".removesuffix(".0") + "%"
    # 99.6% is not 100%.
    return f"{min(99, round(share * 100)) if share < 1 else 100}%"


def span(seconds: float) -> str:
    """Return a duration: 3 ms, 1.4 s, 5 min, 2 h 5 min, 3 d 4 h."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 0.001:
        return "0 ms" if seconds == 0 else "< 1 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    for (size, unit), (smaller, smaller_unit) in zip(_SPANS, (*_SPANS[1:], (1, "s")), strict=True):
        if whole >= size:
            number, rest = divmod(whole, size)
            rest //= smaller
            # Beyond ten of a unit the next smaller one does not matter.
            return f"{number} {unit} {rest} {smaller_unit}" if rest and number < 10 else f"{number} {unit}"
    raise AssertionError(seconds)


def interval_words(interval: timedelta) -> str:
    """Return how often: every 5 min, every 1 h 30 min. Nothing is rounded."""
    milliseconds = interval // timedelta(milliseconds=1)
    parts = []
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")):
        number, milliseconds = divmod(milliseconds, size)
        if number:
            parts.append(f"{number} {unit}")
    return f"every {' '.join(parts)}"


def ago(moment: datetime, now: datetime | None = None) -> str:
    """Return the time relative to now: 5 min ago, in 2 h."""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    whole = int(abs(seconds))
    words = f"{whole} s" if whole < 60 else span(whole)
    return f"{words} ago" if seconds > 0 else f"in {words}"


_NAME = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")
GREENWICH = ZoneInfo("UTC")


@lru_cache(maxsize=256)
def zone_named(name: str) -> ZoneInfo:
    """Return the zone of that name, or UTC if there is none."""
    if not _NAME.fullmatch(name) or len(name) > 64:
        return GREENWICH
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return GREENWICH


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Return the names of all zones, in order."""
    return tuple(sorted(name for name in available_timezones() if "/" in name or name == "UTC"))


def clock(moment: datetime, zone: ZoneInfo) -> str:
    """Return the time of day: 14:03:07."""
    return moment.astimezone(zone).strftime("%H:%M:%S")


def stamp(moment: datetime, zone: ZoneInfo, now: datetime | None = None) -> str:
    """Return date and time; without the year if it is the current one."""
    there = moment.astimezone(zone)
    today = (now or datetime.now(UTC)).astimezone(zone)
    day = f"{there.day} {there:%b}"
    return f"{day} {there:%H:%M:%S}" if there.year == today.year else f"{day} {there.year} {there:%H:%M:%S}"


def brief(moment: datetime, zone: ZoneInfo, now: datetime | None = None) -> str:
    """Return date and time as `stamp` does, without seconds if there are none."""
    words = stamp(moment, zone, now)
    return words if moment.second else words.removesuffix(":00")


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return the number with its noun: 1 job, 2 jobs."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def progress_words(job: JobInfo | HeldJob) -> str:
    """Return the progress of a running job in a few words, for a list. Empty if there is none."""
    progress = job.progress
    if progress is None or (isinstance(job, JobInfo) and job.status is not JobStatus.RUNNING):
        return ""
    # Without an estimate, so that no time is needed.
    return printable.one_line(summary(progress, progress.reported_at or datetime.min, runs=False))


# ---------------------------------------------------------------- payloads

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
