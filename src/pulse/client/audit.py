"""The verb of the audit: who changed what."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pulse import tuning
from pulse.client.caller import Caller
from pulse.client.filters import aware, not_empty
from pulse.messages import Items, Reader, message
from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An action that changed something, or refused calls of one minute."""

    action_id: str
    at: datetime | None
    """When it began, by the clock of the database."""
    user: str
    """Empty if the server requires no login."""
    role: str
    address: str
    """Through the dashboard, that of the visitor and that of the dashboard: `203.0.113.9 via 10.0.0.4`."""
    method: str
    """The RPC, such as CancelJobs."""
    reason: str
    topic: str
    """Empty: several topics, or none."""
    ids: tuple[str, ...]
    """The jobs, schedules and workflows; the first 64."""
    count: int
    """The number of changes, or of refused calls."""
    outcome: str
    """OK, or the status of a refused call."""
    refusal: str
    """Why it was refused."""
    asked: Mapping[str, Any]
    """The filter and the short fields of the request, without payloads."""
    changes: Mapping[str, Mapping[str, Any]]
    """Of settings: each entry that changed, with `old` and `new`."""
    can_undo: bool


@dataclass(frozen=True, slots=True)
class AuditPage(Items[AuditEntry]):
    """Entries of the audit, newest first."""

    entries: tuple[AuditEntry, ...]
    next_cursor: str | None
    """None: this is the last page."""


def _parsed(field: str) -> Callable[[pb.AuditEntry], Any]:
    return lambda entry: json.loads(getattr(entry, field) or "{}")


_audit_entry = Reader(AuditEntry, asked=_parsed("asked_json"), changes=_parsed("changes_json"))
_audit_page = Reader(AuditPage, next_cursor="next_page_token")


class AuditVerbs:
    """The verb of a `Pulse` for the audit."""

    _caller: Caller

    async def audit(
        self,
        *,
        user: str | None = None,
        method: str | None = None,
        topic: str | None = None,
        id: str | None = None,
        since: datetime | None = None,
        refused: bool = False,
        limit: int = tuning.PAGE_SIZE,
        cursor: str | None = None,
        timeout: timedelta | None = None,
    ) -> AuditPage:
        """Return one page of the audit, newest first: which user changed what, when and why.

        `id` is that of a job, a schedule, a workflow or an action. `refused` selects calls that were refused
        for want of a permission. A bulk action is one entry.
        """
        request = message(
            pb.ListAuditRequest,
            user=not_empty("user", user),
            method=not_empty("method", method),
            topic=not_empty("topic", topic),
            id=not_empty("id", id),
            since=aware("since", since),
            refused=refused,
            page_size=limit,
            page_token=cursor or "",
        )
        return _audit_page(await self._caller.call(lambda stub: stub.ListAudit, request, timeout))
