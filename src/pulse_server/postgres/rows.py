"""Converts rows of the driver to domain objects, and back to columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

import asyncpg

from pulse_server.base.ids import PageKey
from pulse_server.domain.jobs import Attempt, Cancellation, Claim, ClaimedJob, Ended, Job, Level, Outcome
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.progress import progress_from_json

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
