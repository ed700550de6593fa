"""The columns of a job, once: of a new job, of a job as it is read, of a completed job.

The fragments of the statements, and the values that are sent with them, are made from these tables. A new
column is a line in each table that it belongs to. A test compares them with the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulse_server.database.statements import NEW_JOB, _New
from pulse_server.domain.jobs import NewJob
from pulse_server.domain.uniform_jobs import UniformJobs
from pulse_server.postgres.rows import array_text


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
