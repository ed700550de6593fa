"""The entries of a schedule in words, and who has set them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pulse_text import printable
from pulse_text.times import format_exact, iso

ENTRIES = {
    "at": "at",
    "every": "every",
    "cron": "cron",
    "time_zone": "tz",
    "topic": "topic",
    "payload": "payload",
    "priority": "priority",
    "max_attempts": "max-attempts",
    "metadata": "metadata",
    "catch_up": "catch-up",
    "start_within": "start-within",
    "overlap": "overlap",
}
"""The entries of a schedule, and their names in the terminal and on pages."""
_LONGEST_PAYLOAD = 60


class Owned(NamedTuple):
    """An entry that an operator has set."""

    entry: str
    name: str
    value: str
    declared: str
    """What the code declares in its place."""
    set_by: str
    set_at: datetime | None


def owned_entries(schedule: Any) -> Iterator[Owned]:
    """Yield what operators have set of a schedule. Lists leave payloads out."""
    for override in schedule.overrides:
        if override.entry not in ENTRIES:
            continue  # of a newer server
        value, declared = (entry_text(each, override.entry) for each in (schedule, schedule.declares))
        set_by = printable.one_line(override.set_by or "an operator")
        yield Owned(override.entry, ENTRIES[override.entry], value, declared, set_by, override.set_at)


def names_of(entries: Iterable[str]) -> list[str]:
    """Return the names of entries; of one that is not known, itself."""
    return [ENTRIES.get(entry, printable.one_line(entry)) for entry in entries]


def is_in_code(schedule: Any) -> bool:
    """Whether code still declares the schedule: the next worker that starts would make it again."""
    return bool(schedule.declared and schedule.vanished_at is None)


def changed_entries(before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the old and the new value of each entry that differs."""
    for entry, name in ENTRIES.items():
        if _has(before, entry) and before.entry(entry) != after.entry(entry):
            yield name, entry_text(before, entry), entry_text(after, entry)


def entry_text(schedule: Any, entry: str) -> str:
    """Return the value of an entry in a line."""
    match schedule.entry(entry):
        case None:
            return "none"
        case timedelta() as span:
            return format_exact(span)
        case datetime() as moment:
            return iso(moment)
        case bytes() as payload:
            return _payload_text(payload)
        case Mapping() as metadata:
            pairs = (f"{name}={value}" for name, value in sorted(metadata.items()))
            return printable.one_line(", ".join(pairs)) or "none"
        case value:
            return printable.one_line(str(value))


def _has(schedule: Any, entry: str) -> bool:
    kinds = {"at": "once", "every": "interval", "cron": "cron", "time_zone": "cron"}
    return bool(kinds.get(entry, schedule.kind) == schedule.kind)


def _payload_text(payload: bytes) -> str:
    if not payload:
        return "none"
    try:
        text = printable.one_line(payload.decode())
    except UnicodeDecodeError:
        text = ""
    return text if 0 < len(text) <= _LONGEST_PAYLOAD else f"{len(payload):,} bytes"
