"""Stores new jobs, and looks up those that existed already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import asyncpg

from pulse_server.domain.errors import AlreadyExists, PulseError, Unavailable
from pulse_server.domain.jobs import NewJob, Submitted
from pulse_server.domain.uniform_jobs import AllInserted, UniformJobs, kinds
from pulse_server.postgres.completing import finished_since
from pulse_server.postgres.database import Connections, Fetch, Rows
from pulse_server.postgres.past_locks import PastLocks, a_day_is_locked, look
from pulse_server.postgres.rows import array_text, metadata_to_json
from pulse_server.postgres.statements import statements

_SQL = statements("transitions/jobs.sql", "queries.sql")


class Stored(NamedTuple):
    """What an insert stored."""

    ids: set[str] | None
    """None: all."""
    rows: Rows
    """What the statement returned."""
    refused: Mapping[int, PulseError] = MappingProxyType({})
    """By the place of the job: those that another session's lock kept out."""


async def insert(hot: Connections, name: str, jobs: Sequence[NewJob]) -> Sequence[Submitted | PulseError]:
    """Store the jobs with the statement of this name. Returns a result for each, in order."""

    stored = await _store_one(hot, name, jobs) if len(jobs) == 1 else await _store_many(hot, name, jobs)
    if stored.ids is None:
        return AllInserted(jobs)
    return await look_up_existing(hot, jobs, stored)


async def _store_one(hot: Connections, name: str, jobs: Sequence[NewJob]) -> Stored:
    if jobs[0].lane is not None:
        return await _store_many(hot, name, jobs)
    return await store(hot, name, _SQL["insert_one"], jobs, lone_columns(jobs[0]))


async def _store_many(hot: Connections, name: str, jobs: Sequence[NewJob]) -> Stored:
    if has_lanes(jobs):
        return await store_in_lanes(hot, "insert_in_lanes", jobs)
    columns = shared(insert_columns(jobs))
    if isinstance(jobs, UniformJobs):
        # Their ids were made for this bulk. If one exists, the bulk was sent before.
        with suppress(asyncpg.UniqueViolationError):
            fresh = "insert_fresh_jobs"
            return await store(hot, fresh, _SQL[fresh], jobs, columns)
    return await store(hot, name, _SQL[name], jobs, columns)


async def store_in_lanes(hot: Connections, name: str, jobs: Sequence[NewJob], *claim: object) -> Stored:
    return await store(hot, name, _SQL[name], jobs, (*_columns_in_lanes(jobs), *claim))


async def store(
    hot: Connections, name: str, statement: str, jobs: Sequence[NewJob], columns: tuple[object, ...]
) -> Stored:
    """Store the jobs with this statement. If it meets a lock, they are stored and not handed over."""
    past_locks = PastLocks(jobs, _insert_plainly)
    rows = await hot.fetch(name, statement, *columns, if_locked=past_locks)
    if past_locks.stored is not None:
        return Stored(past_locks.stored, [], past_locks.refused)
    return Stored(_stored_ids(rows, jobs), rows)


async def _insert_plainly(fetch: Fetch, jobs: Sequence[NewJob]) -> set[str]:
    if has_lanes(jobs):
        rows = await fetch(_SQL["insert_in_lanes"], *_columns_in_lanes(jobs))
    else:
        rows = await fetch(_SQL["insert_jobs"], *shared(insert_columns(jobs)))
    ids = _stored_ids(rows, jobs)
    return {job.id for job in jobs} if ids is None else ids


def _stored_ids(rows: Rows, jobs: Sequence[NewJob]) -> set[str] | None:
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
            raise  # which of two with one id was stored is not known
        # What was stored is answered for: a caller that repeats it would meet the same lock.
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


def _columns_in_lanes(jobs: Sequence[NewJob]) -> tuple[object, ...]:
    return *shared(insert_columns(jobs)), [job.lane for job in jobs]


def insert_columns(jobs: Sequence[NewJob]) -> tuple[object, ...]:
    """The parameters of insert_jobs: the jobs as parallel arrays, and since when completed ones matter."""
    if isinstance(jobs, UniformJobs):
        return _uniform_columns(jobs)
    ids, topics, payloads, priorities, max_attempts, keys, metadata, run_at, delays, schedules, within, *_ = (
        zip(*jobs, strict=True) if jobs else ((),) * len(NewJob._fields)
    )
    return (
        array_text(ids),
        topics,
        payloads,
        priorities if any(priorities) else None,
        max_attempts,
        _if_any(keys),
        [metadata_to_json(entry) for entry in metadata] if any(metadata) else None,
        _if_any(schedules),
        _if_any(run_at),
        _if_any(delays),
        finished_since(ids),
        _if_any(within),
    )


def _uniform_columns(jobs: UniformJobs) -> tuple[object, ...]:
    count, template, ids = len(jobs), jobs.template, jobs.id_digits
    return (
        array_text(ids),
        [template.topic] * count,
        jobs.payloads,
        [template.priority] * count if template.priority else None,
        [template.max_attempts] * count,
        None,
        [metadata_to_json(template.metadata)] * count if template.metadata else None,
        None,
        [template.run_at] * count if template.run_at is not None else None,
        [template.delay] * count if template.delay is not None else None,
        finished_since(ids),
        [template.start_within] * count if template.start_within is not None else None,
    )


def lone_columns(job: NewJob) -> tuple[object, ...]:
    """The parameters of insert_one: those of insert_jobs, with values in place of arrays."""
    return (
        job.id,
        job.topic,
        job.payload,
        job.priority,
        job.max_attempts,
        job.idempotency_key,
        metadata_to_json(job.metadata),
        job.schedule_id,
        job.run_at,
        job.delay,
        finished_since([job.id]),
        job.start_within,
    )


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
    found: dict[int, list[tuple[str, bool, bool]]] = {}
    for row in existing:
        found.setdefault(row["position"] - 1, []).append((str(row["id"]), row["by_id"], row["same"]))
    results: list[Submitted | PulseError] = []
    for position, job in enumerate(jobs):
        rivals = found.get(position, [])
        # The id alone does not decide: a job with the same id may have lost by its key earlier in this batch.
        if job.id in inserted and all(same and other == job.id for other, _, same in rivals):
            inserted.remove(job.id)  # the same id again in this batch is a duplicate of this one
            results.append(Submitted(job.id, False))
        else:
            results.append(answer_for_existing(job, rivals))
    return results


def answer_for_existing(job: NewJob, rivals: Sequence[tuple[str, bool, bool]]) -> Submitted | PulseError:
    """The result for a job that was left out, given the rows with its id or key."""
    for existing_id, by_id, same in rivals:
        if not same:
            named_by = f"job_id {job.id}" if by_id else f"idempotency_key {job.idempotency_key!r}"
            return AlreadyExists(named_by, existing_id)
    if not rivals:
        return Unavailable("The job was removed while it was being submitted. Try again.")
    ids = {existing_id for existing_id, _, _ in rivals}
    if len(ids) > 1:
        return AlreadyExists(f"idempotency_key {job.idempotency_key!r}", min(ids - {job.id}))
    return Submitted(rivals[0][0], True)


def _if_any(column: Sequence[object]) -> Sequence[object] | None:
    """The column, or no array: unnest fills up with nulls, and empty arrays also take the driver its time."""
    return None if column.count(None) == len(column) else column


def shared(columns: tuple[Any, ...]) -> tuple[object, ...]:
    """The columns of insert_jobs; topic, priority and max_attempts as one entry if all jobs have the same.

    The driver looks at every entry of an array: of 1,000 jobs the three take it 1.7 ms.
    """
    ids, topics, payloads, priorities, max_attempts, *others = columns
    return ids, _one_for_all(topics), payloads, _one_for_all(priorities), _one_for_all(max_attempts), *others


def _one_for_all(column: Sequence[Any] | None) -> Sequence[Any] | None:
    return column[:1] if column and column.count(column[0]) == len(column) else column
