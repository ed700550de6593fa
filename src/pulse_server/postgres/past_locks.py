"""Stores new jobs past the locks of other sessions. ADR-0070

A statement that met a lock has stored nothing. The jobs are then inserted in another transaction.
It waits for the tables that every submit needs. Jobs that need another lock are refused, and the
rest are stored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import asyncpg

from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.base.ids import earliest_stamp
from pulse_server.database import connections as database_connections
from pulse_server.database.connections import Connections
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.domain.jobs import NewJob

# A job with an older id, or with a key, is also looked for in days that are over.
_RECENT = timedelta(days=1)

_SQL = statements("locks.sql")


async def look(connections: Connections, name: str, statement: str, *args: object) -> Rows:
    """Run a look-up in the days of completed jobs. Unavailable if a day that it needs is locked."""

    async def in_its_days(fetch: Fetch) -> Rows:
        await _wait_no_longer(fetch)
        return await fetch(statement, *args)

    return await connections.fetch(name, statement, *args, if_locked=in_its_days)


class PastLocks:
    """Inserts the jobs of a statement that met a lock. Called with the Fetch of a transaction.

    `insert` stores some of the jobs with one statement and returns their ids.
    """

    def __init__(
        self, jobs: Sequence[NewJob], insert: Callable[[Fetch, Sequence[NewJob]], Awaitable[set[str]]]
    ) -> None:
        self._jobs = jobs
        self._insert = insert
        self.stored: set[str] | None = None
        """None: no lock was met."""
        self.refused: dict[int, PulseError] = {}
        """By the index of the job. A job that is neither stored nor refused exists already."""

    async def __call__(self, fetch: Fetch) -> Rows:
        jobs = self._jobs
        await fetch(_SQL["lock_tables_of_jobs"])
        now = await _wait_no_longer(fetch)
        ((obstacles,),) = await fetch(_SQL["obstacles_to"], *_obstacle_columns(jobs))
        refused: dict[int, PulseError] = {
            place: _held(jobs[place]) for place, obstacle in enumerate(obstacles) if obstacle == "held"
        }
        free = [place for place, obstacle in enumerate(obstacles) if obstacle is None]
        recent = [place for place in free if _is_recent(jobs[place], now)]
        others = [place for place in free if not _is_recent(jobs[place], now)]
        stored = await self._insert(fetch, [jobs[place] for place in recent]) if recent else set()
        if others:
            await fetch("SAVEPOINT others")
            try:
                stored |= await self._insert(fetch, [jobs[place] for place in others])
            except asyncpg.LockNotAvailableError:
                await fetch("ROLLBACK TO SAVEPOINT others")
                refused |= dict.fromkeys(others, a_day_is_locked())
        self.stored, self.refused = stored, refused
        return []


async def _wait_no_longer(fetch: Fetch) -> datetime:
    """Bound the waits of this transaction, and lock only the days that are read. Returns the time."""
    patience = str(database_connections.LOCK_PATIENCE // timedelta(milliseconds=1))
    ((now, *_),) = await fetch(_SQL["wait_no_longer"], patience)
    assert isinstance(now, datetime)
    return now


def _is_recent(job: NewJob, now: datetime) -> bool:
    """Whether a completed job that this one repeats can only be in the newest days."""
    stamp = earliest_stamp([job.id])
    return job.idempotency_key is None and stamp is not None and stamp / 1000 > (now - _RECENT).timestamp()


def _obstacle_columns(jobs: Sequence[NewJob]) -> tuple[object, ...]:
    return (
        [job.id for job in jobs],
        [job.topic for job in jobs],
        [job.idempotency_key for job in jobs],
        [job.unique and job.unique.key for job in jobs],
        [job.unique and job.unique.scope.value for job in jobs],
    )


def _held(job: NewJob) -> Unavailable:
    keys = []
    if job.idempotency_key is not None:
        keys.append(f"idempotency_key {job.idempotency_key!r}")
    if job.unique is not None:
        keys.append(f"unique key {job.unique.key!r}")
    named_by = " or the ".join(keys or [f"job_id {job.id}"])
    return Unavailable(
        f"A transaction of another session of the database has stored a job with the {named_by}, and has not "
        "ended yet. Try again."
    )


def a_day_is_locked() -> Unavailable:
    return Unavailable(
        "Another session of the database has locked a table of completed jobs, and this job may be in it. "
        "Try again."
    )
