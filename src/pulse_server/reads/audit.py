"""The audit as operators read it. database/audit.py writes the entries of changes. ADR-0081"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pulse_server.base.ids import Page, PageKey, page_of
from pulse_server.database.audit import Action, entry_columns
from pulse_server.database.connections import Database
from pulse_server.database.statements import Fetch, Rows, statements

_SQL = statements("audit.sql")
# The lists of topics and ids have an index that only a bitmap scan reads.
_WITH_BITMAPS = "SET LOCAL enable_bitmapscan = on"
_ENTRY_BYTES = 300
# The entries of a topic with at most so many are read by their ids. For a topic without an entry the
# planner expects 1 in 200 to be of it, and would walk all entries by time.
FEW_ENTRIES = 1_000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries; None is no condition."""

    user: str | None = None
    method: str | None = None
    topic: str | None = None
    id: str | None = None
    """Of a job, schedule, workflow or action."""
    since: datetime | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One action. `count` is the number of changes, or of refused calls."""

    id: str
    at: datetime
    user: str
    role: str
    address: str
    method: str
    reason: str
    topics: Sequence[str]
    ids: Sequence[str]
    count: int
    outcome: str
    refusal: str
    asked: Mapping[str, Any]
    changes: Mapping[str, Any]


class Audit:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: AuditFilter, *, limit: int, token: str) -> Page[AuditEntry]:
        """Return one page, newest first."""
        return await page_of(
            lambda count, after: self._read(wanted, count, after),
            limit,
            token,
            key=lambda entry: PageKey(entry.at, entry.id),
            weight=_weight,
        )

    async def _read(self, wanted: AuditFilter, limit: int, after: PageKey | None) -> list[AuditEntry]:
        async def work(fetch: Fetch) -> Rows:
            await fetch(_WITH_BITMAPS)
            of_topic = None
            if wanted.topic is not None:
                found = await fetch(_SQL["entries_of_topic"], wanted.topic, FEW_ENTRIES + 1)
                of_topic = [row["id"] for row in found] if len(found) <= FEW_ENTRIES else None
            conditions, arguments = _conditions(wanted, after, of_topic)
            statement = f"{_SQL['list_audit']}{conditions} ORDER BY at DESC, id DESC LIMIT {limit}"
            return await fetch(statement, *arguments)

        return [_entry(row) for row in await self._database.reads.transact("list_audit", work)]

    async def record_calls(self, action: Action, code: str, sentence: str, count: int) -> None:
        """Add calls that were counted to the entry of the action."""
        columns = entry_columns(action, code, sentence, action.topics, action.ids, {}, count)
        await self._database.operators.fetch("write_entry", _SQL["write_entry"], *columns)


def _conditions(
    wanted: AuditFilter, after: PageKey | None, of_topic: Sequence[object] | None = None
) -> tuple[str, list[object]]:
    """Return the conditions of the statement. Absent ones would leave the planner no index.

    `of_topic`: the ids of all entries of the topic. None: they are many.
    """
    arguments: list[object] = []

    def parameter(value: object) -> str:
        arguments.append(value)
        return f"${len(arguments)}"

    conditions = " AND outcome <> 'OK'" if wanted.refused else ""
    if wanted.user is not None:
        conditions += f" AND user_name = {parameter(wanted.user)}"
    if wanted.method is not None:
        conditions += f" AND method = {parameter(wanted.method)}"
    if of_topic is not None:
        conditions += f" AND id = ANY({parameter(of_topic)}::uuid[])"
    elif wanted.topic is not None:
        conditions += f" AND topics @> ARRAY[{parameter(wanted.topic)}::text]"
    if wanted.id is not None:
        # As an array that is read first: with OR, the planner walks the entries by time.
        own = parameter(wanted.id)
        conditions += (
            f" AND id = ANY(ARRAY(SELECT {own}::text::uuid UNION ALL"
            f" SELECT named.id FROM pulse.audit AS named WHERE named.ids @> ARRAY[{own}::text] UNION ALL"
            # The last action on a job: of a bulk action the entry names the first jobs only.
            f" SELECT (job.undo ->> 'action')::uuid FROM pulse.jobs AS job WHERE job.id = {own}::text::uuid))"
        )
    if wanted.since is not None:
        conditions += f" AND at >= {parameter(wanted.since)}"
    if after is not None:
        conditions += f" AND (at, id) < ({parameter(after.moment)}, {parameter(after.id)}::uuid)"
    return conditions, arguments


def _entry(row: Any) -> AuditEntry:
    return AuditEntry(
        id=str(row["id"]),
        at=row["at"],
        user=row["user_name"],
        role=row["role"],
        address=row["address"],
        method=row["method"],
        reason=row["reason"],
        topics=row["topics"],
        ids=row["ids"],
        count=row["changed"],
        outcome=row["outcome"],
        refusal=row["refusal"],
        asked=json.loads(row["asked"]),
        changes=json.loads(row["changes"]),
    )


def _weight(entry: AuditEntry) -> int:
    texts = json.dumps([entry.asked, entry.changes, entry.reason, entry.refusal, *entry.topics])
    return len(texts) + 40 * len(entry.ids) + _ENTRY_BYTES
