"""The audit: who changed what, when and why; refused calls; and undo."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from starlette.responses import Response

import pulse
from pulse_text import printable
from pulse_ui import tuning, words
from pulse_ui.web.forms import Form, whole_number
from pulse_ui.web.visits import CHANGES, Visit

_NOTHING = pulse.Undone(0, 0, 0, None)


async def show(visit: Visit) -> Response:
    text = visit.query.text
    choice = AuditQuery(text("user"), text("method"), text("topic"), text("id"), bool(text("refused")))
    page = await visit.client.audit(
        user=choice.user or None,
        method=choice.method or None,
        topic=choice.topic or None,
        id=choice.id or None,
        refused=choice.refused,
        limit=tuning.PAGE_SIZE,
        cursor=text("cursor") or None,
    )
    return await visit.page(
        "audit.html",
        title="Audit",
        live="jobs" if not text("cursor") else None,
        choice=choice,
        rows=audit_rows(page),
        methods=sorted((method_words(name), name) for name in {*CHANGES, choice.method} if name),
        next_path=choice.path(page.next_cursor) if page.next_cursor else None,
        is_first=not text("cursor"),
    )


async def ask_undo(visit: Visit) -> Response:
    """Show how many jobs can be undone now. Changes nothing."""
    action_id = visit.part("action_id")
    changes, (counted, problem) = await asyncio.gather(
        changes_of(visit, id=action_id), _count(visit, action_id)
    )
    return await visit.page(
        "undo.html",
        title="Undo",
        action_id=action_id,
        row=next(iter(changes.rows), None) if changes else None,
        counted=counted,
        problem=problem,
    )


async def undo(visit: Visit, form: Form) -> Response:
    action_id = visit.part("action_id")
    total = whole_number(form, "total", "The count")
    return await visit.begin(
        _steps(visit, action_id, form.reason),
        title=f"Undo an action on {'jobs' if total is None else words.plural(total, 'job')}",
        done_word="undone",
        total=total,
        back="/audit",
        again=f"/audit/{action_id}/undo",
    )


async def _count(visit: Visit, action_id: str) -> tuple[pulse.Undone, str]:
    """Count the jobs that can be undone, up to a number that takes seconds. Also returns why none can be."""
    counted = _NOTHING
    for _ in range(tuning.UNDO_BATCHES_COUNTED):
        try:
            counted += await visit.client.undo_batch(action_id, dry_run=True, cursor=counted.next_cursor)
        except pulse.InvalidTransition as error:
            return _NOTHING, str(error)
        if counted.next_cursor is None:
            break
    return counted, ""


async def _steps(visit: Visit, action_id: str, reason: str) -> AsyncGenerator[int, None]:
    """Undo batch by batch. Yields the running total."""
    done, cursor, undo_id = 0, None, str(uuid4())
    while True:
        batch = await visit.client.undo_batch(
            action_id, reason=reason, cursor=cursor, undo_id=undo_id, timeout=tuning.STEP_TIMEOUT
        )
        done, cursor = done + batch.undone, batch.next_cursor
        yield done
        if cursor is None:
            return


async def changes_of(visit: Visit, **of: Any) -> Changes | None:
    """Return the last changes of a topic, job or schedule. None if this visitor may not see them."""
    try:
        page = await visit.ask("ListAudit", lambda: visit.client.audit(limit=tuning.TOPIC_ROWS, **of), None)
    except pulse.PulseError as error:
        # pulsed serves few such searches at once, and the page has more to show.
        return Changes((), str(error))
    return None if page is None else Changes(audit_rows(page))


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
