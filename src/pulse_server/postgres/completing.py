"""Completed jobs: most move to their day's partition, a few have to stay. ADR-0057

An insert looks for completed jobs with its ids. The search starts at the stamp of the earliest id,
less `STAMP_ALLOWANCE`. So a job may move only if it did not finish earlier than its own stamp less
the allowance. A job with a later stamp, because its producer's clock is ahead, stays in pulse.jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pulse_server.base.ids import earliest_stamp, first_id_at, is_stamped
from pulse_server.base.loops import lease_clock
from pulse_server.database.connections import Connections
from pulse_server.domain.completions import Completions, TopicCompletions
from pulse_server.domain.jobs import Claim
from pulse_server.postgres.row_locks import RowLocks
from pulse_server.postgres.rows import array_text, compact_claim_columns, in_lock_order

# How far the stamp of a moved job may be ahead of its end. Each day more adds a partition to the
# search of every insert.
STAMP_ALLOWANCE = timedelta(hours=1)
# The other half allows for errors in this server's knowledge of the database's clock, which may be
# set back.
_MOST_AHEAD = STAMP_ALLOWANCE / 2


class DatabaseTime:
    """The database's time without a query: the last reading plus the time since.

    The clock of a server, like a producer's clock, may be hours ahead.
    """

    def __init__(self) -> None:
        self._read: tuple[datetime, float] | None = None

    def record(self, moment: datetime) -> None:
        """Store a reading of the database's clock."""
        self._read = moment, lease_clock()

    def now(self) -> datetime | None:
        """None if it was never read."""
        if self._read is None:
            return None
        moment, read_at = self._read
        return moment + timedelta(seconds=lease_clock() - read_at)


def finished_since(ids: Sequence[str]) -> float | None:
    """No completed job with one of these ids finished before this time. None: unknown.

    In seconds since 1970: the driver takes twenty times as long for a datetime.
    """
    stamp = earliest_stamp(ids)
    return None if stamp is None else stamp / 1000 - STAMP_ALLOWANCE.total_seconds()


async def complete_jobs(
    rows: RowLocks,
    connections: Connections,
    name: str,
    claims: Sequence[Claim],
    results: Mapping[Claim, bytes],
    now: datetime,
) -> Completions:
    """Complete the jobs whose claims hold, with the statement `name`. `now` is the database's
    time."""
    ordered = in_lock_order(claims)
    first_ahead = first_id_at(now + _MOST_AHEAD)
    if not ordered or ordered[-1].job_id < first_ahead:
        return Completions(ordered, await _complete(rows, connections, name, ordered, results))
    staying = [claim for claim in ordered if claim.job_id >= first_ahead and is_stamped(claim.job_id)]
    moving = [claim for claim in ordered if claim.job_id < first_ahead or not is_stamped(claim.job_id)]
    completed = await _complete(rows, connections, name, moving, results) if moving else []
    if staying:
        stayed = await _complete(rows, connections, "complete_in_place", staying, results)
        completed += [
            topic._replace(places=[len(moving) + place for place in topic.places]) for topic in stayed
        ]
    return Completions([*moving, *staying], completed)


async def _complete(
    rows: RowLocks,
    connections: Connections,
    name: str,
    ordered: Sequence[Claim],
    results: Mapping[Claim, bytes],
) -> list[TopicCompletions]:
    own = [results.get(claim) for claim in ordered] if results else None
    ids, *columns = compact_claim_columns(ordered)
    found = await rows.fetch(connections, name, ids, *columns, own, encode_ids=array_text)
    # complete_in_place returns three columns: a trigger writes its notices.
    return [
        TopicCompletions(*row[:3])._replace(in_workflows=len(row) > 3 and row["in_workflows"] is not None)
        for row in found
    ]
