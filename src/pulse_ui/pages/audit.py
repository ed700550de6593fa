"""The audit: who changed what, when and why; refused calls; and undo."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

from starlette.responses import Response

import pulse
from pulse_ui import tuning, words
from pulse_ui.views.audit import AuditQuery, Changes, audit_rows, method_words
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
