"""Entries of the audit as pages show them: who did what, when and why, and what changed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import pulse
from pulse_text import printable
from pulse_ui import words

_IDS_SHOWN = 3
_TEXT_SHOWN = 200
"""Characters of a value; the whole is in `pulse audit --output json`."""
_CAPITALS = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Value:
    """One entry of a setting, before and after; or one field of a request."""

    name: str
    new: str
    old: str = ""


@dataclass(frozen=True, slots=True)
class AuditRow:
    entry: pulse.AuditEntry
    what: str
    """The method in words, such as Cancel jobs."""
    amount: str
    """How many it changed; empty for one."""
    links: tuple[tuple[str, str], ...]
    """The path and the name of the first jobs, schedules or workflows."""
    links_left_out: int
    changes: tuple[Value, ...]
    asked: tuple[Value, ...]

    @property
    def is_refused(self) -> bool:
        return self.entry.outcome != "OK"


@dataclass(frozen=True, slots=True)
class Changes:
    """The last changes of a job, a topic or a schedule."""

    rows: Sequence[AuditRow]
    problem: str = ""
    """Why they cannot be read now."""


def audit_rows(entries: Iterable[pulse.AuditEntry]) -> list[AuditRow]:
    return [_row(entry) for entry in entries]


def _row(entry: pulse.AuditEntry) -> AuditRow:
    shown = entry.ids[:_IDS_SHOWN]
    folder = _folder(entry.method)
    return AuditRow(
        entry,
        method_words(entry.method),
        words.count(entry.count) if entry.count != 1 else "",
        tuple((f"/{folder}/{one}", f"…{one[-12:]}") for one in shown),
        max(len(entry.ids), entry.count) - len(shown) if shown else 0,
        tuple(
            Value(printable.one_line(name), _text(new), _text(old))
            for name, (old, new) in sorted(_both(entry.changes).items())
            if new != entry.reason or not new  # a pause keeps its reason, which is shown already
        ),
        tuple(Value(printable.one_line(name), _text(value)) for name, value in sorted(entry.asked.items())),
    )


def method_words(method: str) -> str:
    """Return the name of an RPC in words: CancelJobs is "Cancel jobs"."""
    first, *rest = _CAPITALS.split(method)
    return " ".join([first, *(word.lower() for word in rest)])


def _folder(method: str) -> str:
    if "Schedule" in method:
        return "schedules"
    return "workflows" if "Workflow" in method else "jobs"


def _both(changes: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the old and the new value of each entry."""
    return {
        name: (change.get("old"), change.get("new")) if isinstance(change, dict) else (None, change)
        for name, change in changes.items()
    }


def _text(value: object) -> str:
    if value is None:
        return words.NOTHING
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = printable.one_line(text)
    return shown if len(shown) <= _TEXT_SHOWN else f"{shown[:_TEXT_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """The filter of the page."""

    user: str = ""
    method: str = ""
    topic: str = ""
    id: str = ""
    refused: bool = False

    @property
    def is_empty(self) -> bool:
        return self == AuditQuery()

    def path(self, cursor: str = "") -> str:
        """Return the URL of a page of these entries."""
        fields = {
            "user": self.user,
            "method": self.method,
            "topic": self.topic,
            "id": self.id,
            "refused": "1" if self.refused else "",
            "cursor": cursor,
        }
        query = urlencode({name: value for name, value in fields.items() if value})
        return f"/audit?{query}" if query else "/audit"
