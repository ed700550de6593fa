"""New jobs become rows: plainly, past locks, with a lease, or with a unique key."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import asyncpg

from pulse_server.base.errors import AlreadyExists, PulseError, Unavailable
from pulse_server.base.ids import earliest_stamp
from pulse_server.database import connections as database_connections
from pulse_server.database.connections import Connections
from pulse_server.database.statements import NEW_JOB, Fetch, Rows, _New, statements
from pulse_server.jobs.leases import finished_since
from pulse_server.jobs.new_jobs import (
    AllInserted,
    NewJob,
    Scope,
    Submitted,
    UniformJobs,
    Unique,
    UniqueHolder,
    kinds,
)
from pulse_server.jobs.reads import array_text, level_columns
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import Level

# ---------------------------------------------------------------- columns
# The columns of a job, once: of a new job, of a job as it is read, of a completed job.
#
# The fragments of the statements, and the values that are sent with them, are made from these tables. A new
# column is a line in each table that it belongs to. A test compares them with the schema.


def columns_of(jobs: Sequence[NewJob]) -> list[object]:
    """The jobs as parallel arrays, in the order of NEW_JOB."""
    if isinstance(jobs, UniformJobs):
        return _columns_of_uniform(jobs)
    return [_array(column, list(map(column.of, jobs))) for column in NEW_JOB.values()]


def columns_of_one(job: NewJob) -> list[object]:
    """The job as values, in the order of NEW_JOB."""
    return [column.of(job) for column in NEW_JOB.values()]


def _columns_of_uniform(jobs: UniformJobs) -> list[object]:
    """One value for all jobs, except for ids and payloads."""
    own: dict[str, object] = {"id": array_text(jobs.id_digits), "payload": jobs.payloads}
    for name, column in NEW_JOB.items():
        if name not in own:
            own[name] = _array(column, [column.of(jobs.template)] * (1 if column.is_shared else len(jobs)))
    return [own[name] for name in NEW_JOB]


def _array(column: _New, values: list[Any]) -> object:
    """No array if every job has the default: unnest fills up with nulls."""
    if column.array.startswith("text::"):
        return array_text(values)
    if values.count(column.default) == len(values):
        return None
    is_one_for_all = column.is_shared and values.count(values[0]) == len(values)
    return values[:1] if is_one_for_all else values


# ---------------------------------------------------------------- past locks
# Stores new jobs past the locks of other sessions. docs/figures.md#submits-past-locks
#
# A statement that met a lock has stored nothing. The jobs are then inserted in another transaction.
# It waits for the tables that every submit needs. Jobs that need another lock are refused, and the
# rest are stored.

# A job with an older id, or with a key, is also looked for in days that are over.
_RECENT = timedelta(days=1)

_SQL = statements(
    "jobs/locks.sql",
    "jobs/transitions/jobs.sql",
    "jobs/transitions/unique.sql",
    "jobs/queries.sql",
)


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


# ---------------------------------------------------------------- inserts
# Stores new jobs, and looks up jobs that existed already.

_RICH = _SQL["insert_rich_jobs"]
_FRESH = _SQL["insert_jobs"].replace("ON CONFLICT DO NOTHING", "")


class StoredJobs(NamedTuple):
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


async def _store(hot: Connections, name: str, jobs: Sequence[NewJob]) -> StoredJobs:
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
) -> StoredJobs:
    """Store the jobs with this statement. If it meets a lock, they are stored but not handed
    over."""
    return await _send(hot, name, statement, jobs, (*batch(jobs), *others))


async def store_one(hot: Connections, name: str, statement: str, job: NewJob, *others: object) -> StoredJobs:
    """Store the job with this statement, which takes values in place of arrays."""
    columns = (*columns_of_one(job), finished_since([job.id]), *others)
    return await _send(hot, name, statement, [job], columns)


async def _send(
    hot: Connections, name: str, statement: str, jobs: Sequence[NewJob], columns: tuple[object, ...]
) -> StoredJobs:
    past_locks = PastLocks(jobs, _insert_plainly)
    rows = await hot.fetch(name, statement, *columns, if_locked=past_locks)
    if past_locks.stored is not None:
        return StoredJobs(past_locks.stored, [], past_locks.refused)
    return StoredJobs(stored_ids(rows, jobs), rows)


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
    hot: Connections, jobs: Sequence[NewJob], stored: StoredJobs
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


# ---------------------------------------------------------------- handovers
# Stores new jobs with statements that also lease them. ADR-0030, ADR-0064


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
        stored = await store_one(hot, name, _SQL["hand_over_one"], jobs[0], *others)
    else:
        others = _handover_columns(takers, lease, levels)
        stored = await store(hot, name, _SQL[name], jobs, *others)
    taken = {str(job_id) for row in stored.rows for job_id in row["taken"] or ()}
    return await _answer_with_taken(hot, jobs, stored, taken)


async def hand_over_limited(
    hot: Connections, name: str, jobs: Sequence[NewJob], *claim: object
) -> tuple[list[Submitted | PulseError], Rows]:
    """Store jobs of one limited topic with a statement that also claims. Returns its rows too."""
    stored = await store(hot, name, _SQL[name], jobs, *claim)
    taken = {str(row["id"]) for row in stored.rows if row["id"] is not None}
    return await _answer_with_taken(hot, jobs, stored, taken), stored.rows


async def _answer_with_taken(
    hot: Connections, jobs: Sequence[NewJob], stored: StoredJobs, taken: Set[str]
) -> list[Submitted | PulseError]:
    if stored.ids is None:
        at = stored.submitted_at
        return [Submitted(job.id, False, job.id in taken, submitted_at=at) for job in jobs]
    return [
        answer._replace(is_taken=not answer.duplicate and answer.job_id in taken)
        if isinstance(answer, Submitted)
        else answer
        for answer in await look_up_existing(hot, jobs, stored)
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


# ---------------------------------------------------------------- unique jobs
# Stores new jobs with a unique key, and retries jobs that hold one. ADR-0066
#
# The index decides races. A job that was left out is looked up. The submit may change the job that
# holds its key, guarded by that row. If the row has changed since, the insert is tried again.

# A submit is tried again if it meets a job that starts, ends or is locked at that moment. One round
# settles nearly every race. Past these tries a session holds a row for long, or the key is under a
# flood.
TRIES = 20
PAUSE = timedelta(milliseconds=5)


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
