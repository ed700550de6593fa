"""New jobs as the columns of an insert, and what to answer for those that it left out."""

from __future__ import annotations

from collections.abc import Sequence

from pulse_server.domain.errors import AlreadyExists, PulseError, Unavailable
from pulse_server.domain.jobs import NewJob, Submitted
from pulse_server.postgres.database import Rows
from pulse_server.postgres.rows import metadata_to_json


def insert_columns(jobs: Sequence[NewJob]) -> tuple[Sequence[object], ...]:
    """The jobs as parallel arrays, in the order of insert_jobs' parameters."""
    ids, topics, payloads, priorities, max_attempts, keys, metadata, run_at, delays, schedules = (
        zip(*jobs, strict=True) if jobs else ((),) * len(NewJob._fields)
    )
    return (
        ids,
        topics,
        payloads,
        priorities,
        max_attempts,
        _if_any(keys),
        [metadata_to_json(entry) for entry in metadata] if any(metadata) else (),
        _if_any(schedules),
        _if_any(run_at),
        _if_any(delays),
    )


def existing_columns(jobs: Sequence[NewJob]) -> tuple[Sequence[object], ...]:
    """What find_existing asks by."""
    return (
        [job.id for job in jobs],
        [job.topic for job in jobs],
        [job.payload for job in jobs],
        [job.idempotency_key for job in jobs],
    )


def answers(jobs: Sequence[NewJob], inserted: set[str], existing: Rows) -> list[Submitted | PulseError]:
    """What to say of each job after an insert that left some out, given what find_existing found."""
    found: dict[int, list[tuple[str, bool, bool]]] = {}
    for row in existing:
        found.setdefault(row["position"] - 1, []).append((str(row["id"]), row["by_id"], row["same"]))
    told: list[Submitted | PulseError] = []
    for position, job in enumerate(jobs):
        rivals = found.get(position, [])
        # The id alone does not tell: a namesake in this batch may have lost by its key before this one.
        if job.id in inserted and all(same and other == job.id for other, _, same in rivals):
            inserted.remove(job.id)  # the same id again in this batch is a duplicate of this one
            told.append(Submitted(job.id, False))
        else:
            told.append(_answer(job, rivals))
    return told


def _answer(job: NewJob, rivals: Sequence[tuple[str, bool, bool]]) -> Submitted | PulseError:
    """What to say of one that was left out, given the rows that bear its id or key."""
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


def _if_any(column: Sequence[object]) -> Sequence[object]:
    """The column, or nothing at all: unnest fills up with nulls, and the driver looks at every element."""
    return column if any(value is not None for value in column) else ()
