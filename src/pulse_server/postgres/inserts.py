"""Stores new jobs, and looks up jobs that existed already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

import asyncpg

from pulse_server.base.errors import AlreadyExists, PulseError, Unavailable
from pulse_server.database.connections import Connections
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.domain.jobs import NewJob, Submitted
from pulse_server.domain.uniform_jobs import AllInserted, UniformJobs, kinds
from pulse_server.postgres.columns import columns_of, columns_of_one
from pulse_server.postgres.completing import finished_since
from pulse_server.postgres.past_locks import PastLocks, a_day_is_locked, look

_SQL = statements("transitions/jobs.sql", "queries.sql")
_RICH = statements("transitions/unique.sql")["insert_rich_jobs"]
_FRESH = _SQL["insert_jobs"].replace("ON CONFLICT DO NOTHING", "")


class Stored(NamedTuple):
    """The result of an insert."""

    ids: set[str] | None
    """None: all jobs were stored."""
    rows: Rows
    """The rows of the statement."""
    refused: Mapping[int, PulseError] = MappingProxyType({})
    """Errors of jobs that another session's lock kept out, by the job's index."""

    @property
    def submitted_at(self) -> datetime | None:
        """When the statement stored its first job."""
        return self.rows[0]["stored_at"] if self.rows else None


class Existing(NamedTuple):
    """A row of find_existing: a job with the id or the idempotency key of a new one."""

    id: str
    by_id: bool
    same: bool
    submitted_at: datetime


async def insert(hot: Connections, name: str, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
    """Store the jobs with the statement of this name. Returns a result for each, in order."""
    stored = await _store(hot, name, jobs)
    if stored.ids is None:
        return AllInserted(jobs, stored.submitted_at)
    return await look_up_existing(hot, jobs, stored)


async def _store(hot: Connections, name: str, jobs: Sequence[NewJob]) -> Stored:
    if has_lanes(jobs):
        return await store(hot, "insert_rich_jobs", _RICH, jobs, None)
    if len(jobs) == 1:
        return await store_one(hot, name, _SQL["insert_one"], jobs[0])
    if isinstance(jobs, UniformJobs):
        # Their ids were made for this bulk. If one exists, the bulk was sent before.
        with suppress(asyncpg.UniqueViolationError):
            return await store(hot, name, _FRESH, jobs)
    return await store(hot, name, _SQL[name], jobs)


async def store(
    hot: Connections, name: str, statement: str, jobs: Sequence[NewJob], *others: object
) -> Stored:
    """Store the jobs with this statement. If it meets a lock, they are stored but not handed
    over."""
    return await _send(hot, name, statement, jobs, (*batch(jobs), *others))


async def store_one(hot: Connections, name: str, statement: str, job: NewJob, *others: object) -> Stored:
    """Store the job with this statement, which takes values in place of arrays."""
    columns = (*columns_of_one(job), finished_since([job.id]), *others)
    return await _send(hot, name, statement, [job], columns)


async def _send(
    hot: Connections, name: str, statement: str, jobs: Sequence[NewJob], columns: tuple[object, ...]
) -> Stored:
    past_locks = PastLocks(jobs, _insert_plainly)
    rows = await hot.fetch(name, statement, *columns, if_locked=past_locks)
    if past_locks.stored is not None:
        return Stored(past_locks.stored, [], past_locks.refused)
    return Stored(stored_ids(rows, jobs), rows)


async def _insert_plainly(fetch: Fetch, jobs: Sequence[NewJob]) -> set[str]:
    if has_lanes(jobs):
        rows = await fetch(_RICH, *batch(jobs), None)
    else:
        rows = await fetch(_SQL["insert_jobs"], *batch(jobs))
    ids = stored_ids(rows, jobs)
    return {job.id for job in jobs} if ids is None else ids


def batch(jobs: Sequence[NewJob]) -> tuple[object, ...]:
    """The first parameters of every insert of many jobs."""
    ids = jobs.id_digits if isinstance(jobs, UniformJobs) else [job.id for job in jobs]
    return *columns_of(jobs), finished_since(ids)


def stored_ids(rows: Rows, jobs: Sequence[NewJob]) -> set[str] | None:
    """The ids that a statement has stored and not taken back; None if it stored all jobs."""
    if not rows:
        return set()
    stored, ids, taken_back, *_ = rows[0]
    if stored == len(jobs) and not taken_back:
        return None
    ids = ids if ids is not None else [job.id for job in jobs]
    return set(map(str, ids)) - set(map(str, taken_back or ()))


def has_lanes(jobs: Sequence[NewJob]) -> bool:
    return any(job.lane is not None for job in kinds(jobs))


async def look_up_existing(
    hot: Connections, jobs: Sequence[NewJob], stored: Stored
) -> list[Submitted | PulseError]:
    """The result for each job after an insert that left some out."""
    ids, refused = stored.ids or set(), dict(stored.refused)
    places = [place for place in range(len(jobs)) if place not in refused]
    tried = [jobs[place] for place in places]
    try:
        found = await find_existing(hot, tried) if tried else []
    except Unavailable:
        if len({job.id for job in tried}) < len(tried):
            raise  # it is unknown which of two jobs with one id was stored
        # Report the stored jobs: a caller that repeats them would meet the same lock.
        results: list[Submitted | PulseError] = [
            Submitted(job.id, False) if job.id in ids else a_day_is_locked() for job in tried
        ]
    else:
        results = answers(tried, ids, found)
    by_place = refused | dict(zip(places, results, strict=True))
    return [by_place[place] for place in range(len(jobs))]


async def find_existing(hot: Connections, jobs: Sequence[NewJob]) -> list[asyncpg.Record]:
    """The jobs that conflict with these: by id, and by topic and idempotency key."""
    name, columns = "find_existing", existing_columns(jobs)
    found = await look(hot, name, _SQL[name], *columns, finished_since([job.id for job in jobs]))
    return [*found, *await find_existing_by_key(hot, jobs)]


async def find_existing_by_key(hot: Connections, jobs: Sequence[NewJob]) -> Rows:
    keys = [job.idempotency_key for job in jobs]
    if keys.count(None) == len(keys):
        return []
    name = "find_existing_by_key"
    return await look(hot, name, _SQL[name], *existing_columns(jobs), keys)


def existing_columns(jobs: Sequence[NewJob]) -> tuple[Sequence[object], ...]:
    """The first parameters of find_existing, find_existing_by_key and find_rivals."""
    return (
        [job.id for job in jobs],
        [job.topic for job in jobs],
        [job.payload for job in jobs],
        [job.unique and job.unique.key for job in jobs],
    )


def answers(
    jobs: Sequence[NewJob], inserted: set[str], existing: Sequence[asyncpg.Record]
) -> list[Submitted | PulseError]:
    """The result for each job after an insert that left some out, given the rows of find_existing."""
    found: dict[int, list[Existing]] = {}
    for position, job_id, *rest in existing:
        found.setdefault(position - 1, []).append(Existing(str(job_id), *rest))
    results: list[Submitted | PulseError] = []
    for position, job in enumerate(jobs):
        rivals = found.get(position, [])
        # The id alone does not decide: a job with this id may have lost by its key earlier in the
        # batch.
        if job.id in inserted and all(rival.same and rival.id == job.id for rival in rivals):
            inserted.remove(job.id)  # the same id again in this batch is a duplicate of this one
            results.append(Submitted(job.id, False, submitted_at=rivals[0].submitted_at if rivals else None))
        else:
            results.append(answer_for_existing(job, rivals))
    return results


def answer_for_existing(job: NewJob, rivals: Sequence[Existing]) -> Submitted | PulseError:
    """The result for a job that was left out, given the rows with its id or key."""
    for rival in rivals:
        if not rival.same:
            named_by = f"job_id {job.id}" if rival.by_id else f"idempotency_key {job.idempotency_key!r}"
            return AlreadyExists(named_by, rival.id)
    if not rivals:
        return Unavailable("The job was removed while it was being submitted. Try again.")
    ids = {rival.id for rival in rivals}
    if len(ids) > 1:
        return AlreadyExists(f"idempotency_key {job.idempotency_key!r}", min(ids - {job.id}))
    return Submitted(rivals[0].id, True, submitted_at=rivals[0].submitted_at)
