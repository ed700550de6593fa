"""Heartbeats: the statement that extends leases, within time limits, and stores progress."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pulse_server.domain.jobs import Claim
from pulse_server.domain.leases import ExtendedLeases, StoredProgress
from pulse_server.domain.progress import ProgressReport
from pulse_server.postgres.database import Connections
from pulse_server.postgres.progress import progress_column, progress_from_json
from pulse_server.postgres.row_locks import RowLocks
from pulse_server.postgres.rows import claim_columns, in_lock_order
from pulse_server.postgres.statements import Rows


async def extend_leases(
    rows: RowLocks,
    connections: Connections,
    name: str,
    claims: Sequence[Claim],
    lease: timedelta,
    time_limits: Mapping[str, timedelta],
    progress: Mapping[Claim, ProgressReport],
    confirm_by: Mapping[Claim, datetime],
) -> ExtendedLeases:
    is_plain = not (time_limits or progress or confirm_by)
    # Each claim once: of two entries for a job an update takes either, and one may lack the
    # progress.
    ordered = in_lock_order(claims if is_plain else list(dict.fromkeys(claims)))
    answers = await rows.fetch(
        connections,
        name,
        *claim_columns(ordered),
        lease,
        _seconds(time_limits) if time_limits else None,
        progress_column(map(progress.get, ordered)) if progress else None,
        [_epoch(confirm_by.get(claim)) for claim in ordered] if confirm_by else None,
    )
    if is_plain and len(answers) == len(claims):  # nearly always: skip converting the ids to text
        return ExtendedLeases(set(claims), set(), set(), [], {})
    answer = ExtendedLeases(set(), set(), set(), [], {})
    for job_id, worker_id, attempt, run, delivered, is_over, topic, text, confirmed_until in answers:
        claim = Claim(str(job_id), worker_id, attempt, run)
        (answer.over if is_over else answer.extended if delivered else answer.late).add(claim)
        if confirmed_until is not None:
            answer.confirmed_until[claim] = confirmed_until
        if (stored := progress_from_json(text)) is not None:
            answer.stored.append(StoredProgress(claim, topic, stored))
    return answer


def kept_claims(rows: Rows, asked: Sequence[Claim]) -> set[Claim]:
    """The claims that the statement returned."""
    if len(rows) == len(asked):
        return set(asked)
    return {Claim(str(job_id), *fence) for job_id, *fence in rows}


def _seconds(time_limits: Mapping[str, timedelta]) -> str:
    return json.dumps({topic: limit.total_seconds() for topic, limit in time_limits.items()})


def _epoch(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
