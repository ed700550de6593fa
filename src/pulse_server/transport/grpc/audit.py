"""The RPC of the audit."""

from __future__ import annotations

import json
from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base import bounds
from pulse_server.base.ids import parse_id
from pulse_server.base.loops import each_in_turns
from pulse_server.database.audit import UNDOABLE
from pulse_server.doors import boundary
from pulse_server.reads.audit import Audit, AuditEntry, AuditFilter

_LONGEST_NAME = 200


class AuditRpcs:
    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def list_audit(self, request: pb.ListAuditRequest, _context: Any) -> pb.ListAuditResponse:
        wanted = AuditFilter(
            user=bounds.check_text(request.user, "user", _LONGEST_NAME) or None,
            method=bounds.check_text(request.method, "method", _LONGEST_NAME) or None,
            topic=bounds.check_topic(request.topic) if request.topic else None,
            id=parse_id(request.id, "id") if request.id else None,
            since=boundary.moment(request.since, "since") if request.HasField("since") else None,
            refused=request.refused,
        )
        limit = bounds.check_page_size(request.page_size, bounds.DEFAULT_PAGE_SIZE, "page_size")
        page = await self._audit.page(wanted, limit=limit, token=request.page_token)
        return pb.ListAuditResponse(
            entries=await each_in_turns(_wire_entry, page.entries), next_page_token=page.next_token
        )


def _wire_entry(entry: AuditEntry) -> pb.AuditEntry:
    return pb.AuditEntry(
        action_id=entry.id,
        at=boundary.timestamp(entry.at),
        user=entry.user,
        role=entry.role,
        address=entry.address,
        method=entry.method,
        reason=entry.reason,
        topic=entry.topics[0] if len(entry.topics) == 1 else "",
        ids=entry.ids,
        count=entry.count,
        outcome=entry.outcome,
        refusal=entry.refusal,
        asked_json=json.dumps(entry.asked) if entry.asked else "",
        changes_json=json.dumps(entry.changes) if entry.changes else "",
        can_undo=entry.method in UNDOABLE and entry.outcome == "OK",
    )
