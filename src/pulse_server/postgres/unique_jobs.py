"""Stores new jobs with a unique key, and retries jobs that hold one. ADR-0066

The index decides races. A job that was left out is looked up. The submit may change the job that
holds its key, guarded by that row. If the row has changed since, the insert is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import asyncpg

from pulse_server.base.errors import PulseError, Unavailable
from pulse_server.database.connections import Connections
from pulse_server.database.statements import Fetch, Rows, statements
from pulse_server.domain.jobs import NewJob, Submitted
from pulse_server.domain.unique import Scope, Unique, UniqueHolder
from pulse_server.postgres.columns import columns_of
from pulse_server.postgres.completing import finished_since
from pulse_server.postgres.inserts import (
    Existing,
    answer_for_existing,
    batch,
    existing_columns,
    find_existing_by_key,
    stored_ids,
)
from pulse_server.postgres.past_locks import PastLocks, look

# A submit is tried again if it meets a job that starts, ends or is locked at that moment. One round
# settles nearly every race. Past these tries a session holds a row for long, or the key is under a
# flood.
TRIES = 20
PAUSE = timedelta(milliseconds=5)

_SQL = statements("transitions/unique.sql", "unique.sql")


@dataclass(slots=True)
class _Rivals:
    """The rows of find_rivals for one job."""

    existing: list[Existing] = field(default_factory=list)
    holder: str | None = None
    """The job that holds its unique key."""
    holder_waits: bool = False
    holder_submitted_at: datetime | None = None
    last: str | None = None
    """The last job stored for its throttled key, while the period lasts."""


async def insert_unique(hot: Connections, name: str, jobs: Sequence[NewJob]) -> list[Submitted | PulseError]:
    """Store the jobs, each with its unique key. Returns a result for each, in order."""
    answers: dict[int, Submitted | PulseError] = {}
    places: Sequence[int] = range(len(jobs))
    for attempt in range(TRIES):
        if attempt > 1:
            await asyncio.sleep(PAUSE.total_seconds() * min(attempt, 10))
        stored, refused, stored_at = await _insert(hot, name, [jobs[place] for place in places])
        answers.update({places[number]: error for number, error in refused.items()})
        for place in places:
            if jobs[place].id in stored:
                stored.remove(jobs[place].id)  # the same id again in this batch is a duplicate of this one
                answers[place] = Submitted(jobs[place].id, False, submitted_at=stored_at)
        left = [place for place in places if place not in answers]
        try:
            answers.update(await _meet(hot, jobs, left) if left else {})
        except Unavailable as error:
            answers.update(dict.fromkeys(left, error))  # the other jobs have their results
        places = [place for place in left if place not in answers]
        if not places:
            break
    return [answers.get(place) or _contended(jobs[place]) for place in range(len(jobs))]


async def _insert(
    hot: Connections, name: str, jobs: Sequence[NewJob]
) -> tuple[set[str], Mapping[int, PulseError], datetime | None]:
    """Insert the jobs that have no rival. Returns their ids, the jobs that a lock kept out, and when."""

    async def insert_some(fetch: Fetch, some: Sequence[NewJob]) -> set[str]:
        return _stored(await fetch(_SQL[name], *_insert_columns(some)), some)

    past_locks = PastLocks(jobs, insert_some)
    rows = await hot.fetch(name, _SQL[name], *_insert_columns(jobs), if_locked=past_locks)
    if past_locks.stored is not None:
        return past_locks.stored, past_locks.refused, None
    return _stored(rows, jobs), {}, rows[0]["stored_at"]


def _stored(rows: Rows, jobs: Sequence[NewJob]) -> set[str]:
    stored = stored_ids(rows, jobs)
    stored = {job.id for job in jobs} if stored is None else stored
    return stored.difference(map(str, rows[0]["throttled"] or ()))


async def _meet(
    hot: Connections, jobs: Sequence[NewJob], places: Sequence[int]
) -> dict[int, Submitted | PulseError]:
    """Find the results of the jobs that were left out. A job without a result must be inserted
    again."""
    left = [jobs[place] for place in places]
    rows = await look(hot, "find_rivals", _SQL["find_rivals"], *_rival_columns(left))
    found = {place: _Rivals() for place in places}
    for position, job_id, *row in rows:
        _note(found[places[position - 1]], str(job_id), *row)
    for position, job_id, *row in await find_existing_by_key(hot, left):
        found[places[position - 1]].existing.append(Existing(str(job_id), *row))
    answers: dict[int, Submitted | PulseError] = {}
    to_meet: dict[int, str] = {}
    for place, rivals in found.items():
        job, unique = jobs[place], _unique(jobs[place])
        if rivals.existing:
            answers[place] = answer_for_existing(job, rivals.existing)
        elif rivals.holder is not None and not rivals.holder_waits and unique.scope is Scope.WAITING:
            if rivals.last is not None:
                answers[place] = Submitted(rivals.last, True)
            else:
                to_meet[place] = rivals.holder  # it has started: its key is free
        elif rivals.holder is not None and unique.replaces:
            to_meet[place] = rivals.holder
        elif rivals.holder is not None or rivals.last is not None:
            at = rivals.holder_submitted_at if rivals.holder else None
            answers[place] = Submitted(rivals.holder or rivals.last or "", True, submitted_at=at)
    if to_meet:
        replaced = await _meet_rivals(hot, jobs, to_meet)
        answers |= {
            place: Submitted(rival, True, is_replaced=True, submitted_at=found[place].holder_submitted_at)
            for place, rival in to_meet.items()
            if rival in replaced and _unique(jobs[place]).replaces
        }
    return answers


def _note(rivals: _Rivals, job_id: str, reason: str, same: bool, waits: bool, submitted_at: datetime) -> None:
    match reason:
        case "unique":
            rivals.holder, rivals.holder_waits, rivals.holder_submitted_at = job_id, waits, submitted_at
        case "period":
            rivals.last = job_id
        case _:
            rivals.existing.append(Existing(job_id, True, same, submitted_at))


async def _meet_rivals(hot: Connections, jobs: Sequence[NewJob], to_meet: dict[int, str]) -> set[str]:
    """Replace waiting rivals, and free the keys of started ones. Returns the replaced rivals."""
    # If several jobs replace the same rival, the last one wins.
    of_rival: dict[str, int] = {}
    for place, rival in to_meet.items():
        if rival not in of_rival or _unique(jobs[place]).replaces:
            of_rival[rival] = place
    met = [(rival, jobs[place]) for rival, place in sorted(of_rival.items())]
    uniques = [_unique(job) for _, job in met]
    rows = await hot.fetch(
        "meet_rivals",
        _SQL["meet_rivals"],
        *columns_of([job for _, job in met]),
        [rival for rival, _ in met],
        [unique.replaces for unique in uniques],
        [unique.longest for unique in uniques],
    )
    return {str(job_id) for job_id, is_replaced in rows if is_replaced}


async def without_held(
    retry: Callable[..., Awaitable[Rows]],
    holders: Callable[[Collection[str]], Awaitable[dict[str, UniqueHolder]]],
    job_ids: Collection[str],
    *args: object,
) -> Rows:
    """Retry the jobs, except jobs whose unique key another job holds now."""
    for _ in range(TRIES):
        try:
            return await retry(sorted(job_ids), *args) if job_ids else []
        except asyncpg.UniqueViolationError:
            held = await holders(job_ids)
            job_ids = [job_id for job_id in job_ids if job_id not in held]
    raise Unavailable("Jobs with the unique keys of these kept coming and going. Try again.")


def _contended(job: NewJob) -> PulseError:
    return Unavailable(
        f"The job that holds the unique key {_unique(job).key!r} is locked by another session of the "
        "database, or kept changing. Try again."
    )


def _unique(job: NewJob) -> Unique:
    assert job.unique is not None, "only jobs with a unique key come here"
    return job.unique


def _insert_columns(jobs: Sequence[NewJob]) -> tuple[object, ...]:
    """The parameters of insert_rich_jobs. Sorted by keys: two statements cannot wait for each other."""
    ordered = sorted(jobs, key=lambda job: (job.topic, _unique(job).key))
    periods = [_unique(job).throttle for job in ordered]
    return *batch(ordered), periods if any(periods) else None


def _rival_columns(jobs: Sequence[NewJob]) -> tuple[object, ...]:
    uniques = [_unique(job) for job in jobs]
    return (
        *existing_columns(jobs),
        finished_since([job.id for job in jobs]),
        [unique.scope.value for unique in uniques],
        [unique.throttle is not None for unique in uniques],
    )
