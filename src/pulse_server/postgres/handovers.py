"""Stores new jobs with statements that also lease them. ADR-0030, ADR-0064"""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import timedelta

from pulse_server.base.errors import PulseError
from pulse_server.database.connections import Connections
from pulse_server.database.statements import Rows, statements
from pulse_server.domain.jobs import Level, NewJob, Submitted
from pulse_server.domain.slots import Taker
from pulse_server.postgres import inserts
from pulse_server.postgres.rows import array_text, level_columns

_SQL = statements("transitions/jobs.sql")


async def hand_over(
    hot: Connections,
    name: str,
    jobs: Sequence[NewJob],
    takers: Sequence[Taker | None],
    lease: timedelta,
    levels: Sequence[Level] | None,
) -> list[Submitted | PulseError]:
    """Store the jobs, each leased to its taker unless others wait at these levels. Answers as insert.

    If another session has locked a table that this needs, such as lease_checks, no job is leased.
    """
    others: tuple[object, ...]
    if len(jobs) == 1:
        (taker,) = takers
        others = taker and taker.worker_id, taker and taker.confirms, lease, *level_columns(levels)
        stored = await inserts.store_one(hot, name, _SQL["hand_over_one"], jobs[0], *others)
    else:
        others = _handover_columns(takers, lease, levels)
        stored = await inserts.store(hot, name, _SQL[name], jobs, *others)
    taken = {str(job_id) for row in stored.rows for job_id in row["taken"] or ()}
    return await _answer_with_taken(hot, jobs, stored, taken)


async def hand_over_limited(
    hot: Connections, name: str, jobs: Sequence[NewJob], *claim: object
) -> tuple[list[Submitted | PulseError], Rows]:
    """Store jobs of one limited topic with a statement that also claims. Returns its rows too."""
    stored = await inserts.store(hot, name, _SQL[name], jobs, *claim)
    taken = {str(row["id"]) for row in stored.rows if row["id"] is not None}
    return await _answer_with_taken(hot, jobs, stored, taken), stored.rows


async def _answer_with_taken(
    hot: Connections, jobs: Sequence[NewJob], stored: inserts.Stored, taken: Set[str]
) -> list[Submitted | PulseError]:
    if stored.ids is None:
        at = stored.submitted_at
        return [Submitted(job.id, False, job.id in taken, submitted_at=at) for job in jobs]
    return [
        answer._replace(is_taken=not answer.duplicate and answer.job_id in taken)
        if isinstance(answer, Submitted)
        else answer
        for answer in await inserts.look_up_existing(hot, jobs, stored)
    ]


def _handover_columns(
    takers: Sequence[Taker | None], lease: timedelta, levels: Sequence[Level] | None
) -> tuple[object, ...]:
    """The last parameters of hand_over_jobs."""
    known = [taker for taker in dict.fromkeys(takers) if taker is not None]
    index: dict[Taker | None, int] = {taker: number for number, taker in enumerate(known, 1)}
    return (
        [taker.worker_id for taker in known],
        None if all(taker.confirms for taker in known) else [taker.confirms for taker in known],
        lease,
        *level_columns(levels),
        array_text([index.get(taker) for taker in takers]),
    )
