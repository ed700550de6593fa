"""Claims and their ends: what is claimed, completed, settled and reaped."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from operator import itemgetter
from time import monotonic
from typing import Any, NamedTuple

from pulse_server.base.bounds import LEASE_EXPIRED_GROUP, TIME_LIMIT_EXCEEDED_GROUP
from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.base.ids import PageKey, earliest_stamp, first_id_at, is_stamped
from pulse_server.base.loops import lease_clock
from pulse_server.database.connections import Connections, Database
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.jobs.reads import (
    THE_BEGINNING,
    ClaimedRows,
    Row,
    array_text,
    claimed_jobs_from_rows,
    compact_claim_columns,
    in_lock_order,
    level_columns,
)
from pulse_server.jobs.reports import Completions, Slots, TopicCompletions
from pulse_server.jobs.rules import (
    STEP_OVERHEAD_BYTES,
    Claim,
    ClaimedJob,
    JobStatus,
    Level,
    Reaped,
    Step,
    StepKind,
)

# ---------------------------------------------------------------- row locks
# Changes of jobs that skip the rows another session has locked. ADR-0042

# A row that was found locked counts as locked for this long. A batch with such rows locks its free
# rows first instead of waiting, which costs a few round trips.
LOCK_REMEMBERED = timedelta(seconds=10)
# How many locked rows are remembered.
LOCKS_REMEMBERED = 10_000

log = logging.getLogger(__name__)

# Statements that need a stronger lock than an update.
_LOCKS = dict.fromkeys(("delete_jobs", "complete_jobs"), "lock_deletable_jobs")


async def leave_it(_fetch: Fetch) -> Rows:
    """Skip the statement: its rows may have changed once the lock is gone."""
    raise Unavailable("Another session has locked the table. Try again.")


class RowLocks:
    """Sends a statement unchanged. If it meets a lock, sends it again for the free rows only.

    Every statement takes the ids of its jobs as $1. The caller looks up the jobs that the result
    lacks: their rows were locked, or the statement's own rule left them out.
    """

    def __init__(self, statements: Mapping[str, str], clock: Callable[[], float] = monotonic) -> None:
        self._statements = statements
        self._clock = clock
        # By id, until when the row is taken to be locked; the earliest comes first.
        self._locked: dict[object, float] = {}

    async def fetch(
        self,
        connections: Connections,
        name: str,
        job_ids: Sequence[object],
        *args: object,
        encode_ids: Callable[[Sequence[object]], object] = lambda ids: ids,
    ) -> Rows:
        """Run the statement of this name on the jobs whose rows can be locked without a long wait.

        `encode_ids` returns the ids in the statement's format. The ids of locked rows are None.
        """

        async def on_free_rows(fetch: Fetch) -> Rows:
            free = await self._lock_free(fetch, name, job_ids)
            # None replaces a locked id: the other ids keep their places in the statement's arrays.
            named = [job_id if job_id in free else None for job_id in job_ids]
            return await fetch(self._statements[name], encode_ids(named), *args)

        if self._locked and self._names_a_locked_row(job_ids):
            return await connections.transact(name, on_free_rows)
        return await connections.fetch(
            name, self._statements[name], encode_ids(job_ids), *args, if_locked=on_free_rows
        )

    async def _lock_free(self, fetch: Fetch, name: str, job_ids: Sequence[object]) -> set[str]:
        """Lock the rows that no other session has locked. Returns their ids."""
        rows = await fetch(self._statements[_LOCKS.get(name, "lock_free_jobs")], job_ids)
        free = {str(row["id"]) for row in rows}
        self._remember(name, [job_id for job_id in job_ids if job_id not in free], free)
        return free

    def _names_a_locked_row(self, job_ids: Sequence[object]) -> bool:
        now = self._clock()
        while self._locked and next(iter(self._locked.values())) <= now:
            del self._locked[next(iter(self._locked))]
        return not self._locked.keys().isdisjoint(job_ids)

    def _remember(self, name: str, locked: Sequence[object], free: set[str]) -> None:
        new = [job_id for job_id in locked if job_id not in self._locked]
        if new:
            log.warning("rows_locked", extra={"statement": name, "jobs": len(new), "job_id": new[0]})
        for job_id in self._locked.keys() & free:
            del self._locked[job_id]
        forgotten_at = self._clock() + LOCK_REMEMBERED.total_seconds()
        for job_id in locked[:LOCKS_REMEMBERED]:
            self._locked.pop(job_id, None)  # to the end
            self._locked[job_id] = forgotten_at
        while len(self._locked) > LOCKS_REMEMBERED:
            del self._locked[next(iter(self._locked))]


def step_from_row(row: Any) -> Step:
    signal_id = row["signal_id"]
    return Step(
        name=row["name"],
        kind=StepKind(row["kind"]),
        attempt=row["attempt"],
        started_at=row["started_at"],
        stored_at=row["stored_at"],
        until=row["until"],
        signal_id=None if signal_id is None else str(signal_id),
        value=row["value"],
        size=row["bytes"] or 0,
        is_due=row["is_due"],
        signal=row["signal"] or "",
    )


_SQL = statements("jobs/transitions/claims.sql", "jobs/lease_checks.sql", "jobs/queries.sql")


# ---------------------------------------------------------------- claimed steps
# The stored steps of claimed jobs, which go to their workers with the jobs.

# Byte limits: for one job, and for all jobs of a claim. Workers read further steps themselves.
MOST_BYTES_OF_A_JOB = 64 * 1024
MOST_BYTES = 512 * 1024


async def with_steps(connections: Connections, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
    """Return the jobs with their stored steps.

    Otherwise a worker would need a call for each job: a thousand jobs that wake together would wait
    for one another.
    """
    stepped = [job.id for job in jobs if job.has_steps]
    if not stepped:
        return jobs
    name = "list_steps_of_claimed"
    try:
        rows = await connections.fetch(
            name, _SQL[name], stepped, MOST_BYTES_OF_A_JOB, MOST_BYTES, STEP_OVERHEAD_BYTES
        )
    except PulseError as error:  # the jobs are leased, and their workers can read the steps themselves
        log.warning("steps_not_read", extra={"jobs": len(stepped), "reason": str(error)})
        return jobs
    stored: dict[str, list[Step]] = {}
    for row in rows:
        steps = stored.setdefault(str(row["id"]), [])
        if row["name"] is not None:
            steps.append(step_from_row(row))
    return _with(jobs, stored)


def _with(jobs: Sequence[ClaimedJob], stored: dict[str, list[Step]]) -> list[ClaimedJob]:
    return [job._replace(steps=stored[job.id]) if job.id in stored else job for job in jobs]


# ---------------------------------------------------------------- claiming
# Claims of one topic, and claims across topics, which read more jobs and repeat.
#
# A claim across topics chooses without locks, then locks what it takes. Locking the best of every topic
# would lock topics × slots rows, which other servers then skip. A free slot means that no other job is
# ready: the claim repeats until it knows. docs/figures.md#claims-over-many-topics

# How many jobs a claim reads per slot: at first a few more than it needs. If servers that claim the
# same topics have locked them, it tries again with more, then with four times as many at each try.
# Another claim may have locked a thousand jobs.
_CANDIDATES_PER_SLOT = (1.125, 2)
_GROWTH = 4
_by_slot = itemgetter(0)
# From how many rows on the jobs are made when they are read.
MANY_ROWS = 100


def slot_arguments(slots: Slots, lease: timedelta) -> list[object]:
    return [
        len(slots.order),
        [index + 1 for index in slots.order],
        list(slots.workers),
        list(slots.confirms),
        lease,
        slots.most_bytes,
        [index + 1 for index in slots.packed],
        slots.packed_bytes,
    ]


def claimed_jobs(rows: Sequence[Row], slots: Slots) -> list[ClaimedJob]:
    # RETURNING promises no order.
    return claimed_jobs_from_rows(sorted(rows, key=_by_slot), slots.workers)


async def claim_in_topic(
    connections: Connections,
    name: str,
    topics: Collection[str],
    slots: Slots,
    lease: timedelta,
    levels: Sequence[Level] | None,
) -> list[ClaimedJob] | ClaimedRows:
    """Lease the best jobs of one topic to the slots' workers, by full look or from these levels."""
    rows = await connections.fetch(name, _SQL[name], *_arguments(topics, slots, lease, levels))
    if len(rows) < MANY_ROWS or any(row["has_steps"] for row in rows):
        return claimed_jobs(rows, slots)
    return ClaimedRows(sorted(rows, key=_by_slot), slots.workers)


async def claim_across_topics(
    connections: Connections,
    name: str,
    topics: Collection[str],
    slots: Slots,
    lease: timedelta,
    levels: Sequence[Level] | None,
) -> list[ClaimedJob]:
    """Lease the best jobs of these topics to the slots' workers; fewer than slots if no more are
    ready.

    The first try reads only `levels`, if they are given. Tries go on until the slots are filled, or
    all ready jobs were among the candidates: the hub concludes from a free slot that none is left.
    """
    jobs: list[ClaimedJob] = []
    for per_slot in _candidates_per_slot():
        rest = _rest(slots, jobs)
        candidates, of_each = _candidates(
            len(slots.order) * per_slot, len(topics if levels is None else levels)
        )
        arguments = [*_arguments(topics, rest, lease, levels), candidates, of_each]
        levels = None
        try:
            # Under the name of the claim of a single topic: in metrics and logs they are the same.
            rows = await connections.fetch(name, _SQL["claim_across_topics"], *arguments)
        except PulseError:
            if not jobs:
                raise
            jobs[-1] = jobs[-1]._replace(age_seconds=None)  # they are leased; others may be ready
            break
        jobs += claimed_jobs([row[:-1] for row in rows if row["id"] is not None], rest)
        if slots.is_filled_by(jobs) or rows[0]["candidates"] < candidates:
            break
    return jobs


def _arguments(
    topics: Collection[str], slots: Slots, lease: timedelta, levels: Sequence[Level] | None
) -> list[object]:
    """The parameters of claim_batch. Without levels, the places are whole topics."""
    names, priorities, ages = (list(topics), None, None) if levels is None else level_columns(levels)
    return [names, *slot_arguments(slots, lease), priorities, ages]


def _rest(slots: Slots, jobs: Sequence[ClaimedJob]) -> Slots:
    if not jobs:
        return slots
    left = slots.most_bytes - sum(len(job.payload) for job in jobs)
    return slots._replace(order=slots.order[len(jobs) :], most_bytes=left, packed=())


def _candidates_per_slot() -> Iterator[float]:
    yield from _CANDIDATES_PER_SLOT
    yield from (_GROWTH**power for power in count(1))


def _candidates(jobs: float, topics: int) -> tuple[int, int]:
    """From how many jobs to choose, and how many of each topic to read first.

    The topic's share plus two more: this rarely makes a second look necessary, and for few topics.
    """
    candidates = math.ceil(jobs)
    return candidates, min(candidates, math.ceil(candidates / max(1, topics)) + 2)


# ---------------------------------------------------------------- completing
# Completed jobs: most move to their day's partition, a few have to stay. ADR-0057
#
# An insert looks for completed jobs with its ids. The search starts at the stamp of the earliest id,
# less `STAMP_ALLOWANCE`. So a job may move only if it did not finish earlier than its own stamp less
# the allowance. A job with a later stamp, because its producer's clock is ahead, stays in pulse.jobs.

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


# ---------------------------------------------------------------- lease checks
# Lease checks: claims are settled, expired leases are found and reaped. ADR-0056

# Lease checks per reaping statement. Each has up to a thousand jobs, at 2 µs a job.
_REAPED_CHECKS = 20
# Settled before a reap: leases may be shorter than the interval at which claims are settled.
_SETTLED_CHECKS = 500
_UNSETTLED_FOR = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Restoration:
    """The result of one page of unfinished jobs: the number read, the last one, and the number of
    running jobs that lacked a lease check."""

    looked_at: int = 0
    reached: PageKey | None = None
    restored: int = 0


class PostgresLeaseCheckRepo:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def settle_claims(self, limit: int, looking_back: timedelta | None = None) -> int:
        """Read claims that are a few seconds old, and keep checks only for jobs that still run.

        Returns the number of checks read, at most `limit`. `looking_back` bounds their age; None:
        any.
        """
        return await _settle(self._database.hot, "settle_claims", limit, looking_back)

    async def restore_lease_checks(self, *, after: PageKey | None, limit: int) -> Restoration:
        """Write missing lease checks for the oldest unfinished jobs after `after`, by
        submission."""
        after = after or THE_BEGINNING
        (row,) = await self._database.hot.fetch(
            "restore_lease_checks", _SQL["restore_lease_checks"], after.moment, after.id, limit
        )
        return Restoration(
            looked_at=row["looked_at"],
            reached=PageKey(row["submitted_at"], str(row["id"])) if row["looked_at"] else None,
            restored=row["restored"],
        )


class ReapPolicy(NamedTuple):
    """For topics without settings of their own: the backoff as JSON, and the grace of time limits."""

    backoff: str | None
    max_crashes: int
    attempt_timeout: timedelta | None
    grace: timedelta


async def reap(
    hot: Connections, name: str, statement: str, limit: int, expired_before: datetime, policy: ReapPolicy
) -> list[Reaped]:
    """Reap the jobs whose leases had expired by then, with the statement `name`; oldest first."""
    # A short lease expires before its claim is settled.
    await _settle(hot, "settle_claims", _SETTLED_CHECKS, _UNSETTLED_FOR)
    reaped: list[Reaped] = []
    while True:
        try:
            # Not after a wait for the whole table: no heartbeat could be stored during it either.
            # ADR-0042
            rows = await hot.fetch(
                name,
                statement,
                limit - len(reaped),
                expired_before,
                LEASE_EXPIRED_GROUP,
                _REAPED_CHECKS,
                *policy,
                TIME_LIMIT_EXCEEDED_GROUP,
                if_locked=leave_it,
            )
        except PulseError:
            if reaped:  # these are published; the next tick finds the rest
                return reaped
            raise
        reaped += [
            Reaped(
                Claim(str(row["id"]), row["locked_by"], row["attempts"], row["run"]),
                row["topic"],
                JobStatus(row["status"]),
                row["delivered"],
                row["is_timed_out"],
            )
            for row in rows
            if row["id"] is not None
        ]
        if len(reaped) >= limit or rows[0]["lease_checks"] < _REAPED_CHECKS:
            return reaped


async def _settle(hot: Connections, name: str, limit: int, looking_back: timedelta | None) -> int:
    ((lease_checks,),) = await hot.fetch(name, _SQL[name], limit, looking_back, if_locked=leave_it)
    return int(lease_checks)
