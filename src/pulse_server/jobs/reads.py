"""Rows as nouns, and the statements that list and count jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, overload
from uuid import UUID

import asyncpg

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Connections, Database
from pulse_server.database.statements import Rows, statements
from pulse_server.jobs.new_jobs import Scope, UniqueHolder
from pulse_server.jobs.reports import ActedOn
from pulse_server.jobs.rules import (
    LIVE,
    TERMINAL,
    Attempt,
    Cancellation,
    Claim,
    ClaimedJob,
    Ended,
    Job,
    JobFilter,
    JobStatus,
    Level,
    Outcome,
    Progress,
    ProgressReport,
)

# ---------------------------------------------------------------- progress
# Progress, between the domain and the column of a job.


def progress_column(reports: Iterable[ProgressReport | None]) -> list[str | None]:
    """The reports as an array parameter; empty if there are none, which costs nothing."""
    texts = [None if report is None else report_to_json(report) for report in reports]
    return texts if any(texts) else []


def report_to_json(report: ProgressReport) -> str:
    entries: dict[str, object] = {
        "fraction": report.fraction,
        "text": report.text,
        "number": report.number,
    }
    if report.cursor is not None:
        # A text, not JSON: jsonb would change numbers, and refuse some strings.
        entries["cursor"] = report.cursor or None
    return json.dumps(entries)


def progress_from_json(text: str | None) -> Progress | None:
    if text is None:
        return None
    entries = json.loads(text)
    since = entries.get("since")
    return Progress(
        fraction=entries["fraction"],
        text=entries["text"],
        cursor=entries.get("cursor") or "",
        attempt=entries["attempt"],
        reported_at=datetime.fromisoformat(entries["reported_at"]),
        since=None if since is None else datetime.fromisoformat(since),
        since_fraction=entries.get("since_fraction") or 0.0,
    )


# ---------------------------------------------------------------- rows
# Converts rows of the driver to domain objects, and back to columns.

Row = asyncpg.Record | tuple[Any, ...]
# Comes before every job in submission order.
THE_BEGINNING = PageKey(datetime.min.replace(tzinfo=UTC), str(UUID(int=0)))


def job_from_row(row: asyncpg.Record) -> Job:
    """The job of a row that may lack columns, and have others. A NULL is the default of its field."""
    values = {name: value for name, value in row.items() if value is not None and name in _OF_JOB}
    for name, convert in _CONVERTED.items():
        if name in values:
            values[name] = convert(values[name])
    if "progress" in values and (cursor := row.get("cursor")):
        values["progress"] = values["progress"]._replace(cursor=cursor)
    return Job(**values)


def cancellation_from_row(row: asyncpg.Record) -> Cancellation:
    worker_id = row["ended_worker_id"]
    claim = (str(row["id"]), worker_id, row["ended_attempt"], row["ended_run"])
    return Cancellation(job_from_row(row), Claim(*claim) if worker_id is not None else None)


def claimed_jobs_from_rows(rows: Iterable[Row], workers: Sequence[str]) -> list[ClaimedJob]:
    """The jobs of a claim. The second column is the index of the worker, counted from 1."""
    jobs: list[ClaimedJob] = []
    add, new_tuple = jobs.append, tuple.__new__
    for row in rows:
        # Sixteen names twice, and no star: a star would make a list for each of a thousand rows.
        (
            _,
            place,
            job_id,
            topic,
            payload,
            attempt,
            run,
            priority,
            most,
            metadata,
            key,
            confirm,
            waited,
            age,
            has_steps,
            progress,
        ) = row
        metadata = None if metadata is None else json.loads(metadata)
        worker = workers[place - 1]
        # A ClaimedJob made without the call of a Python function, for the same reason.
        job = (
            str(job_id),
            topic,
            payload,
            attempt,
            run,
            priority,
            most,
            metadata,
            key,
            worker,
            confirm,
            waited,
            age,
            has_steps,
            None,
            None if progress is None else progress_from_json(progress),
            None,
        )
        add(new_tuple(ClaimedJob, job))
    return jobs


class ClaimedRows(Sequence[ClaimedJob]):
    """The jobs of a large claim, made from its rows when they are first read, and the last one by itself.

    To make a thousand jobs takes half as long as the statement: the hub sends the next claim before.
    """

    def __init__(self, rows: Sequence[asyncpg.Record], workers: Sequence[str]) -> None:
        self._rows = rows
        self._workers = workers
        self._jobs: list[ClaimedJob] | None = None
        self.payload_bytes = sum([len(row["payload"]) for row in rows])

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> ClaimedJob: ...
    @overload
    def __getitem__(self, place: slice) -> list[ClaimedJob]: ...
    def __getitem__(self, place: int | slice) -> ClaimedJob | list[ClaimedJob]:
        if self._jobs is None and place == -1:
            return claimed_jobs_from_rows(self._rows[-1:], self._workers)[0]
        return self._all()[place]

    def __iter__(self) -> Iterator[ClaimedJob]:
        return iter(self._all())

    def _all(self) -> list[ClaimedJob]:
        if self._jobs is None:
            self._jobs = claimed_jobs_from_rows(self._rows, self._workers)
        return self._jobs


def ended_from_rows(rows: Iterable[Row]) -> dict[Claim, Ended]:
    """The attempts that a statement ended, by their claims."""
    return {
        Claim(str(job_id), worker_id, attempt, run): Ended(JobStatus(status), topic, ran_seconds)
        for job_id, worker_id, attempt, run, topic, ran_seconds, status in rows
    }


def levels_from_rows(rows: Iterable[asyncpg.Record]) -> tuple[Level, ...]:
    return tuple(Level(row["topic"], row["priority"], row["age_seconds"]) for row in rows)


def level_columns(levels: Sequence[Level] | None) -> Sequence[Sequence[object] | None]:
    """The levels as parallel arrays. The first is null if levels are unknown, empty if there are
    none."""
    if not levels:
        return (None if levels is None else (), None, None)
    return list(zip(*levels, strict=True))


def metadata_from_json(text: str | None) -> dict[str, str] | None:
    return json.loads(text) if text is not None else None


def history_from_json(text: str | None) -> tuple[Attempt, ...]:
    if text is None:
        return ()
    return tuple(
        Attempt(
            attempt=entry["attempt"],
            run=entry["run"],
            worker_id=entry["worker"],
            started_at=datetime.fromisoformat(entry["started_at"]) if entry["started_at"] else None,
            ended_at=datetime.fromisoformat(entry["ended_at"]),
            outcome=Outcome(entry["outcome"]),
            error=entry["error"] or "",
        )
        for entry in json.loads(text)
    )


def in_lock_order(claims: Sequence[Claim]) -> list[Claim]:
    """The claims by id: statements that lock their rows in one order cannot deadlock."""
    return sorted(claims, key=_job_id)


def claim_columns(ordered: Sequence[Claim]) -> tuple[Sequence[object], ...]:
    """The claims as parallel arrays. They have to be in lock order."""
    return tuple(zip(*ordered, strict=True)) if ordered else ((), (), (), ())


def compact_claim_columns(ordered: Sequence[Claim]) -> tuple[Sequence[object], ...]:
    """claim_columns with each worker once: ids, worker ids, the index of each worker, attempts,
    runs.

    The last three are the texts of arrays.
    """
    ids, workers, attempts, runs = claim_columns(ordered)
    names = [name for name in dict.fromkeys(workers) if name is not None]
    index = {name: number for number, name in enumerate(names, 1)}
    return ids, names, array_text(map(index.get, workers)), array_text(attempts), array_text(runs)


def array_text(values: Iterable[object]) -> str:
    """Ids or numbers as the text of an array; a None becomes a NULL.

    The driver checks for every entry of an array whether it is an array itself, which takes the
    longest.
    """
    return "{" + ",".join(["NULL" if one is None else str(one) for one in values]) + "}"


_job_id = itemgetter(0)
_OF_JOB = frozenset(field.name for field in fields(Job))
_CONVERTED: Mapping[str, Callable[[Any], object]] = {
    "id": str,
    "status": JobStatus,
    "schedule_id": str,
    "metadata": metadata_from_json,
    "lane": lambda lane: lane or None,
    "workflow_id": str,
    "history": history_from_json,
    "progress": progress_from_json,
}


# ---------------------------------------------------------------- listing
# Builds the statements that list and count jobs by a filter.
#
# The conditions are part of the text: `$1 IS NULL OR …` would leave the planner no index. Each arm
# reads one partial index in its order, so the cost of a page depends on its size alone: a list of
# live jobs never steps over finished ones, and a list of dead letters never over successes. Completed
# jobs have a separate arm, and a few of them are in pulse.jobs (ADR-0057).

_ORDER = "ORDER BY submitted_at DESC, id DESC"
_UNSUCCESSFUL = TERMINAL - {JobStatus.COMPLETED}
# By the lease checks, as in the fragment running_jobs: no index contains the running jobs.
_RUNS = (
    "locked_by IS NOT NULL AND id = ANY (ARRAY("
    "SELECT unnest(ids) FROM pulse.lease_checks WHERE settled UNION ALL SELECT unnest(ids) "
    "FROM pulse.lease_checks WHERE NOT settled AND check_at > now() - interval '1 minute'))"
)


class Listing:
    """A statement under construction, with its arguments. The section `name` reads pulse.jobs, and
    the section `name`_completed reads completed_jobs."""

    def __init__(
        self,
        sections: Mapping[str, str],
        name: str,
        wanted: JobFilter,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> None:
        self.arguments: list[object] = []
        # The comment with the section's name comes first, as everywhere.
        self._label, _, statement = sections[name].rpartition("*/ ")
        conditions = self._conditions(wanted, after, until)
        self._arms = [f"{statement} AND {arm}{conditions}" for arm in _arms(wanted)]
        if _may_be_completed(wanted):
            completed = sections[f"{name}_completed"].rpartition("*/ ")[2]
            # topic >= '' opens the index completed_jobs_newest. Jobs of a schedule, of a lane and with
            # an error have other indexes.
            has_index = _has_error(wanted) or wanted.schedule_id is not None or wanted.lane is not None
            opened = "" if has_index else " AND topic >= ''"
            self._arms.append(completed + opened + conditions)

    def page(self, *, limit: int, offset: int = 0) -> str:
        """The statement for one page, newest first."""
        reach = self.parameter(limit + offset)
        arms = " UNION ALL ".join(f"({arm} {_ORDER} LIMIT {reach})" for arm in self._arms)
        window = f"LIMIT {self.parameter(limit)} OFFSET {self.parameter(offset)}"
        return f"{self._label}*/ SELECT * FROM ({arms}) AS found {_ORDER} {window}"

    def count(self, most: int | None = None) -> str:
        """The statement that counts matching jobs, of each arm `most` at the most."""
        bound = "" if most is None else f" LIMIT {self.parameter(most)}"
        arms = " + ".join(f"(SELECT count(*) FROM ({arm}{bound}) AS found)" for arm in self._arms)
        return f"{self._label}*/ SELECT {arms} AS jobs"

    def _conditions(self, wanted: JobFilter, after: PageKey | None, until: PageKey | None) -> str:
        conditions = ""
        if wanted.topics is not None:
            # Of one topic, the planner knows how many jobs to expect.
            first, *others = sorted(wanted.topics)
            conditions += (
                f" AND topic = ANY({self.parameter([first, *others])}::text[])"
                if others
                else f" AND topic = {self.parameter(first)}"
            )
        if wanted.schedule_id is not None:
            conditions += f" AND schedule_id = {self.parameter(wanted.schedule_id)}::uuid"
        if wanted.submitted_since is not None:
            conditions += f" AND submitted_at >= {self.parameter(wanted.submitted_since)}"
        if wanted.submitted_before is not None:
            conditions += f" AND submitted_at < {self.parameter(wanted.submitted_before)}"
        if _has_error(wanted):
            conditions += " AND last_error IS NOT NULL"
        if wanted.error_contains is not None:
            conditions += (
                f" AND strpos(lower(last_error), lower({self.parameter(wanted.error_contains)})) > 0"
            )
        if wanted.metadata is not None:
            conditions += f" AND metadata @> {self.parameter(json.dumps(dict(wanted.metadata)))}::text::jsonb"
        if wanted.error_group is not None:
            # error_group >= '' is true of every row, and opens the index jobs_dead_letters.
            conditions += f" AND error_group = {self.parameter(wanted.error_group)} AND error_group >= ''"
        if wanted.lane is not None:
            # lane > '' is true of every lane, and opens the indexes of lanes.
            conditions += f" AND lane = {self.parameter(wanted.lane)} AND lane > ''"
        if after is not None:
            last = f"{self.parameter(after.moment)}, {self.parameter(after.id)}::uuid"
            conditions += f" AND (submitted_at, id) < ({last})"
        if until is not None:
            last = f"{self.parameter(until.moment)}, {self.parameter(until.id)}::uuid"
            conditions += f" AND (submitted_at, id) >= ({last})"
        return conditions

    def require(self, condition: str) -> None:
        """Add a condition on the rows of each section."""
        self._arms = [f"{arm} AND {condition}" for arm in self._arms]

    def parameter(self, value: str | int | datetime | list[str]) -> str:
        """Add an argument. Returns its place in the text."""
        self.arguments.append(value)
        return f"${len(self.arguments)}"


def _arms(wanted: JobFilter) -> list[str]:
    """Conditions that together select the statuses, each served by one index."""
    statuses = wanted.statuses
    if wanted.schedule_id is not None:  # its index has jobs of any status
        return ["true" if statuses is None else _is_one_of(statuses)]
    is_of_lane = wanted.lane is not None  # its index has jobs of any status, too, and that of errors
    if statuses is None:
        has_index = is_of_lane or _has_error(wanted)
        return ["true"] if has_index else ["finished_at IS NULL", "finished_at IS NOT NULL"]
    arms = []
    if (live := statuses & LIVE) == {JobStatus.RUNNING}:
        arms.append(_RUNS)
    elif live and is_of_lane:
        arms.append(_is_one_of(live))
    elif live:
        arms.append("finished_at IS NULL" + ("" if live == LIVE else f" AND {_is_one_of(live)}"))
    if statuses >= TERMINAL:
        return [*arms, "finished_at IS NOT NULL"]
    if JobStatus.COMPLETED in statuses:
        arms.append("finished_at IS NOT NULL AND ended_as IS NULL")
    # Only these statuses are in an index, as ended_as: claims write the status. ADR-0056
    return arms + [f"ended_as = '{status.value}'" for status in sorted(statuses & _UNSUCCESSFUL)]


def _has_error(wanted: JobFilter) -> bool:
    return wanted.has_error or wanted.error_contains is not None


def _may_be_completed(wanted: JobFilter) -> bool:
    is_asked_for = wanted.statuses is None or JobStatus.COMPLETED in wanted.statuses
    return is_asked_for and wanted.error_group is None  # only dead letters have one


def _is_one_of(statuses: set[JobStatus] | frozenset[JobStatus]) -> str:
    # As literals from our own enum, so that the planner can prove the predicates of partial indexes.
    names = ", ".join(f"'{status.value}'" for status in sorted(statuses))
    return f"status IN ({names})" if len(statuses) > 1 else f"status = {names}"


_SQL = statements("jobs/queries.sql")


# ---------------------------------------------------------------- job reads
# Reads of the jobs table that change nothing. Each method sends the SQL section of the same name.


class PostgresJobReads:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get_job(self, job_id: str) -> Job | None:
        rows = await self._read(self._database.reads, "get_job", job_id)
        return job_from_row(rows[0]) if rows else None

    async def look_up_jobs(self, job_ids: Collection[str]) -> dict[str, Job]:
        """Read the fields that judge a report: status, attempts, holder, times and history."""
        rows = await self._read(self._database.hot, "look_up_jobs", list(job_ids))
        return {job.id: job for job in map(job_from_row, rows)}

    async def jobs_of_unended_workflows(self, job_ids: Collection[str]) -> set[str]:
        """Those of the jobs whose workflow has not ended. They cannot be deleted."""
        rows = await self._read(self._database.reads, "jobs_of_unended_workflows", list(job_ids))
        return {str(row["id"]) for row in rows}

    async def canceled_workflows_of(self, job_ids: Collection[str]) -> dict[str, str]:
        """Those of the jobs that wait in a canceled workflow, each with it. They cannot be retried."""
        rows = await self._read(self._database.reads, "canceled_workflows_of", list(job_ids))
        return {str(row["id"]): str(row["workflow_id"]) for row in rows}

    async def job_statuses(self, job_ids: Collection[str]) -> dict[str, JobStatus]:
        """The statuses of the existing jobs, by id."""
        rows = await self._read(self._database.reads, "job_statuses", list(job_ids))
        return {str(row["id"]): JobStatus(row["status"]) for row in rows}

    async def list_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int,
        offset: int = 0,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> list[Job]:
        """Newest first, without payloads and histories. `until` is the last that may be read."""
        listing = Listing(_SQL, "list_jobs", wanted, after, until)
        statement = listing.page(limit=limit, offset=offset)
        rows = await self._database.reads.fetch("list_jobs", statement, *listing.arguments)
        return [job_from_row(row) for row in rows]

    async def matching_jobs(
        self,
        wanted: JobFilter,
        *,
        limit: int,
        offset: int = 0,
        after: PageKey | None = None,
        until: PageKey | None = None,
    ) -> list[PageKey]:
        """The keys of matching jobs, newest first."""
        listing = Listing(_SQL, "matching_jobs", wanted, after, until)
        statement = listing.page(limit=limit, offset=offset)
        rows = await self._database.reads.fetch("matching_jobs", statement, *listing.arguments)
        return [PageKey(row["submitted_at"], str(row["id"])) for row in rows]

    async def count_matching_jobs(
        self, wanted: JobFilter, *, until: PageKey | None = None, most: int | None = None
    ) -> int:
        """How many jobs match. It may stop once there are `most`."""
        listing = Listing(_SQL, "count_matching_jobs", wanted, until=until)
        statement = listing.count(most)
        rows = await self._database.reads.fetch("count_matching_jobs", statement, *listing.arguments)
        return int(rows[0]["jobs"])

    async def find_jobs(self, prefix: str, limit: int) -> list[str]:
        """The ids that begin with these hexadecimal digits."""
        first, last = prefix.ljust(32, "0"), prefix.ljust(32, "f")
        rows = await self._read(self._database.reads, "find_jobs", first, last, limit)
        return [str(row["id"]) for row in rows]

    async def unique_holders(
        self, job_ids: Collection[str], scopes: Collection[Scope] = (Scope.LIVE,)
    ) -> dict[str, UniqueHolder]:
        """The finished jobs that cannot be retried, each with the holder of its unique key."""
        rows = await self._read(self._database.operators, "unique_holders", list(job_ids), list(scopes))
        return {str(job_id): UniqueHolder(str(holder), key) for job_id, holder, key in rows}

    async def jobs_of_action(self, action: str, *, after: str | None, limit: int) -> list[ActedOn]:
        """The jobs that the action changed last, by id, after this id."""
        after = after or THE_BEGINNING.id
        rows = await self._read(self._database.operators, "jobs_of_action", action, after, limit)
        return [ActedOn(str(row["id"]), row["can_be_undone"], row["was_running"]) for row in rows]

    async def _read(self, connections: Connections, name: str, *args: object) -> Rows:
        return await connections.fetch(name, _SQL[name], *args)
