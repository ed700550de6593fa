"""Heartbeats: statements that extend leases, some of them with time limits or with progress."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta

from pulse_server.domain.jobs import Claim
from pulse_server.domain.leases import BoundedLeases, ExtendedWithProgress, StoredProgress
from pulse_server.domain.progress import ProgressReport
from pulse_server.postgres.database import Connections, Rows
from pulse_server.postgres.progress import progress_column, progress_from_json
from pulse_server.postgres.row_locks import RowLocks
from pulse_server.postgres.rows import claim_columns, in_lock_order


class LeaseStatements:
    def __init__(self, rows: RowLocks, connections: Connections) -> None:
        self._rows = rows
        self._connections = connections

    async def extend(self, name: str, claims: Sequence[Claim], lease: timedelta) -> set[Claim]:
        rows = await self._fetch(name, in_lock_order(claims), lease)
        return kept_claims(rows, claims)

    async def extend_bounded(
        self, name: str, claims: Sequence[Claim], lease: timedelta, limits: Mapping[str, timedelta]
    ) -> BoundedLeases:
        rows = await self._fetch(name, in_lock_order(claims), lease, _seconds(limits))
        answer = BoundedLeases(set(), set())
        for job_id, worker_id, attempt, is_over in rows:
            (answer.over if is_over else answer.extended).add(Claim(str(job_id), worker_id, attempt))
        return answer

    async def extend_with_progress(
        self,
        name: str,
        claims: Sequence[Claim],
        lease: timedelta,
        limits: Mapping[str, timedelta],
        progress: Mapping[Claim, ProgressReport],
    ) -> ExtendedWithProgress:
        # Each once: of two entries for a job an update takes either, and one of them may have no progress.
        ordered = in_lock_order(list(dict.fromkeys(claims)))
        column = progress_column(map(progress.get, ordered))
        rows = await self._fetch(name, ordered, lease, _seconds(limits), column)
        answer = ExtendedWithProgress(set(), set(), [])
        for job_id, worker_id, attempt, is_over, topic, text in rows:
            claim = Claim(str(job_id), worker_id, attempt)
            (answer.over if is_over else answer.extended).add(claim)
            if (stored := progress_from_json(text)) is not None:
                answer.stored.append(StoredProgress(claim, topic, stored))
        return answer

    async def _fetch(self, name: str, ordered: Sequence[Claim], *args: object) -> Rows:
        return await self._rows.fetch(self._connections, name, *claim_columns(ordered), *args)


def kept_claims(rows: Rows, asked: Sequence[Claim]) -> set[Claim]:
    """Those of the claims that the statement returned."""
    if len(rows) == len(asked):  # all of them, as nearly always: spare the ids their way back into text
        return set(asked)
    return {Claim(str(job_id), worker_id, attempt) for job_id, worker_id, attempt in rows}


def _seconds(limits: Mapping[str, timedelta]) -> str:
    return json.dumps({topic: limit.total_seconds() for topic, limit in limits.items()})
