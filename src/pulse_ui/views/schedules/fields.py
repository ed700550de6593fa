"""The fields of the forms of schedules and jobs: each text as a value, or why it is invalid."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

import pulse
from pulse_text.times import parse_duration
from pulse_ui.words import zone_named

CATCH_UPS: tuple[pulse.CatchUp, ...] = ("one", "skip", "all")
OVERLAPS: tuple[pulse.Overlap, ...] = ("allow", "skip", "queue")
EDITED_PAYLOAD = 256 * 1024
"""In a form each quotation mark is sent as three characters; a form may have 2 MiB."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class InvalidField(Exception):
    """An invalid field, with the sentence to show beside it."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field
        self.sentence = sentence


class Reading:
    """Reads the fields and collects their problems."""

    def __init__(self) -> None:
        self.problems: dict[str, str] = {}

    def read(self, reader: Callable[..., Any], *arguments: object) -> Any:
        try:
            return reader(*arguments)
        except InvalidField as invalid:
            self.problems[invalid.field] = invalid.sentence
            return None


# ------------------------------------------------------------ timetable


def read_span(text: str) -> timedelta:
    if not text.strip():
        raise InvalidField("every", "Enter an interval, such as 90s, 5m, 2h or 1d.")
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidField("every", str(error)) from None


def read_moment(text: str, time_zone: str, now: datetime) -> datetime:
    zone = zone_named(time_zone)
    if zone.key != time_zone:
        raise InvalidField(
            "time_zone",
            f"“{time_zone[:40]}” is not a time zone: use an IANA name such as Europe/Paris, or UTC.",
        )
    if not text:
        raise InvalidField("at", "Choose a date and a time.")
    try:
        written = datetime.fromisoformat(text)
        moment = written if written.tzinfo is not None else written.replace(tzinfo=zone)
        universal = moment.astimezone(UTC)
        is_real = universal.astimezone(moment.tzinfo).replace(tzinfo=None) == moment.replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise InvalidField("at", f"“{text[:40]}” is not a time: write it as 2030-01-31T09:00.") from None
    if not is_real:
        raise InvalidField("at", f"This time does not exist in {time_zone}: the clocks skip it.")
    if universal <= now:
        raise InvalidField("at", "This time has passed. Choose a later one.")
    return universal


# ------------------------------------------------------------ jobs


def payload_text(payload: bytes) -> str | None:
    """Return the payload as indented JSON; None: it is not JSON, or too large for a form."""
    if not payload:
        return ""
    try:
        text = msgspec.json.format(payload, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return text if len(text) <= EDITED_PAYLOAD else None


def metadata_text(metadata: Mapping[str, str]) -> str | None:
    """Return the metadata line by line; None: an entry does not fit on a line."""
    for name, value in metadata.items():
        is_trimmed = name == name.strip() and value == value.strip()
        if not name or "=" in name or not is_trimmed or _LINE_BREAKS.search(name + value):
            return None
    return "\n".join(f"{name}={value}" for name, value in sorted(metadata.items()))


def read_topic(text: str) -> str:
    if not text.strip():
        raise InvalidField("topic", "Enter the topic of its jobs, such as send-email.")
    return text.strip()


def read_payload(text: str) -> bytes | None:
    document = text.strip().encode(errors="surrogatepass")
    if not document:
        return None
    try:
        msgspec.json.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidField("payload", f"Not valid JSON: {_problem(document, error)}.") from None
    return document


def _problem(document: bytes, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    found = re.match(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)", str(error))
    if found is None:
        return "it ends too early" if "truncated" in str(error) else str(error).lower().rstrip(".")
    before = document[: int(found[2])].decode(errors="replace")
    column = len(before) - before.rfind("\n")
    return f"{found[1].lower()}, at line {before.count(chr(10)) + 1}, column {column}"


def read_number(field: str, text: str) -> int | None:
    number = text.strip()
    if not number:
        return None
    if not _NUMBER.fullmatch(number):
        raise InvalidField(field, f"“{number[:40]}” is not a valid whole number.")
    return int(number)


def read_catch_up(text: str) -> pulse.CatchUp:
    for known in CATCH_UPS:
        if text == known:
            return known
    raise InvalidField("catch_up", "Choose one of the options.")


def read_overlap(text: str) -> pulse.Overlap:
    for known in OVERLAPS:
        if text == known:
            return known
    raise InvalidField("overlap", "Choose one of the options.")


def read_metadata(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise InvalidField("metadata", f"Line {number} is not of the form name=value.")
        if name.strip() in found:
            raise InvalidField("metadata", f"Line {number} repeats {name.strip()[:40]}.")
        found[name.strip()] = value.strip()
    return found
