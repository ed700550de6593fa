"""Completed jobs: most of them move to their day's partition, a few have to stay. ADR-0057

An insert looks for completed jobs with its ids from the moment on that is stamped into the earliest of them,
less `STAMP_ALLOWANCE`. This is sound if no moved job finished earlier than that, by its own stamp: a job
whose stamp is ahead of the time, because the clock of its producer is, stays in pulse.jobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from time import monotonic

from pulse import failpoints
from pulse_server.clock import lease_clock
from pulse_server.domain.completions import Completions, TopicCompletions
from pulse_server.domain.errors import Unavailable
from pulse_server.domain.ids import earliest_stamp, first_id_at, is_stamped
from pulse_server.domain.jobs import Claim
from pulse_server.domain.reports import ResultReport
from pulse_server.postgres.database import Connections
from pulse_server.postgres.row_locks import RowLocks
from pulse_server.postgres.rows import array_text, compact_claim_columns, in_lock_order

# How far the stamp of a moved job may be ahead of its end. Each day more is one partition more to look at for
# every insert.
STAMP_ALLOWANCE = timedelta(hours=1)
# The rest is for what a server knows of the database's clock, which may have been set back since it was read.
_MOST_AHEAD = STAMP_ALLOWANCE / 2
_REMEMBERED_SECONDS = 60.0
# They leave out jobs that have steps, and the first one what is counted at a turnstile.
_PLAIN = ("complete_jobs", "complete_governed", "complete_with_results")


class DatabaseTime:
    """The time of the database without a query: as it was last read, and what has passed since.

    The clock of a server may be hours ahead, like those of its producers.
    """

    def __init__(self, clock: Callable[[], float] = lease_clock) -> None:
        self._clock = clock
        self._read: tuple[datetime, float] | None = None

    def record(self, moment: datetime) -> None:
        """The database's clock has just shown this moment."""
        self._read = moment, self._clock()

    def now(self) -> datetime | None:
        """None if it was never read."""
        if self._read is None:
            return None
        moment, read_at = self._read
        return moment + timedelta(seconds=self._clock() - read_at)


def finished_since(ids: Sequence[str]) -> float | None:
    """The time before which no completed job with one of these ids finished; None if that is unknown.

    In seconds since 1970: the driver takes twenty times as long for a datetime.
    """
    stamp = earliest_stamp(ids)
    return None if stamp is None else stamp / 1000 - STAMP_ALLOWANCE.total_seconds()


class GovernedRuns:
    """Whether this server has claimed jobs of governed topics lately: then most completions are of such."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until = -math.inf

    def claimed(self) -> None:
        self._until = self._clock() + _REMEMBERED_SECONDS

    @property
    def are_likely(self) -> bool:
        return self._clock() < self._until


async def complete_jobs(
    rows: RowLocks, connections: Connections, name: str, claims: Sequence[Claim], now: datetime
) -> Completions:
    """Complete the jobs whose claims hold, with the statement of this name. `now` is of the database."""
    ordered = in_lock_order(claims)
    if not ordered or ordered[-1].job_id < first_id_at(now + _MOST_AHEAD):
        return Completions(ordered, await _complete(rows, connections, name, ordered))
    moving, staying = _parted(ordered, now)
    completed = await _complete(rows, connections, name, moving) if moving else []
    if staying:
        stayed = await _complete(rows, connections, "complete_in_place", staying, [None] * len(staying))
        completed += _after(len(moving), stayed)
    return Completions([*moving, *staying], completed)


async def complete_with_results(
    rows: RowLocks, connections: Connections, name: str, reports: Sequence[ResultReport], now: datetime
) -> Completions:
    """Do the same for jobs that have results."""
    # Of several reports on one claim, the first is stored.
    results = {report.claim: report.result for report in reversed(reports)}
    moving, staying = _parted(in_lock_order(list(results)), now)
    completed: list[TopicCompletions] = []
    if moving:
        completed = await _complete(rows, connections, name, moving, [results[one] for one in moving])
    if staying:
        own = [results[one] for one in staying]
        completed += _after(
            len(moving), await _complete(rows, connections, "complete_in_place", staying, own)
        )
    return Completions([*moving, *staying], completed)


def _parted(ordered: Sequence[Claim], now: datetime) -> tuple[list[Claim], list[Claim]]:
    """The claims on jobs that move, and on those that stay in pulse.jobs."""
    first_ahead = first_id_at(now + _MOST_AHEAD)
    staying = [claim for claim in ordered if claim.job_id >= first_ahead and is_stamped(claim.job_id)]
    moving = [claim for claim in ordered if claim.job_id < first_ahead or not is_stamped(claim.job_id)]
    return moving, staying


def _after(claims: int, completed: Sequence[TopicCompletions]) -> list[TopicCompletions]:
    return [topic._replace(places=[claims + place for place in topic.places]) for topic in completed]


async def _complete(
    rows: RowLocks,
    connections: Connections,
    name: str,
    ordered: Sequence[Claim],
    results: Sequence[bytes | None] | None = None,
) -> list[TopicCompletions]:
    columns = compact_claim_columns(ordered)
    if results is not None:
        columns = (*columns, results)
    found = await rows.fetch(connections, name, *columns, encode_ids=array_text)
    completed = [TopicCompletions(*row) for row in found]
    if name in _PLAIN and sum(len(topic.places) for topic in completed) < len(ordered):
        taken = {place for topic in completed for place in topic.places}
        left = [place for place in range(1, len(ordered) + 1) if place not in taken]
        own = [None if results is None else results[place - 1] for place in left]
        rest = await _complete_others(rows, connections, [ordered[place - 1] for place in left], own)
        completed += [topic._replace(places=[left[place - 1] for place in topic.places]) for topic in rest]
    return completed


@failpoints.before("jobs.completing", Unavailable)
async def _complete_others(
    rows: RowLocks, connections: Connections, ordered: Sequence[Claim], results: Sequence[bytes | None]
) -> list[TopicCompletions]:
    return await _complete(rows, connections, "complete_with_steps", ordered, results)
