"""The columns of a job, once: of a new job, of a job as it is read, of a completed job.

The fragments of the statements, and the values that are sent with them, are made from these tables. A new
column is a line in each table that it belongs to. A test compares them with the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from pulse_server.domain.jobs import REPLACED, NewJob
from pulse_server.domain.uniform_jobs import UniformJobs
from pulse_server.postgres.rows import array_text, metadata_to_json


class _New(NamedTuple):
    """A column of a new job, as a statement takes it."""

    type: str
    of: Callable[[Any], object]
    """The value of a NewJob."""
    stored: str | None = "new.{name}"
    """The expression to store; None: not stored, it only decides when the job is due."""
    default: object = None
    """If all jobs have this value, no array is sent."""
    is_shared: bool = False
    """Send an array of one if all jobs have the same value: the driver looks at every entry."""
    array: str = "{type}[]"
    """The type of the array to send. The driver encodes one text faster than many ids."""
    is_at_the_doors: bool = True
    """Whether the functions of sql/interface/ have a variable with the value. Else they store NULL."""


def _metadata(job: Any) -> str | None:
    return metadata_to_json(job.metadata)


def _unique_key(job: Any) -> str | None:
    return job.unique.key if job.unique else None


def _unique_scope(job: Any) -> str | None:
    return job.unique.scope.value if job.unique else None


NEW_JOB: Mapping[str, _New] = {
    "id": _New("uuid", attrgetter("id"), array="text::uuid[]"),
    "topic": _New("text", attrgetter("topic"), is_shared=True),
    "payload": _New("bytea", attrgetter("payload")),
    "priority": _New("int", attrgetter("priority"), default=0, is_shared=True),
    "max_attempts": _New("int", attrgetter("max_attempts"), is_shared=True),
    "idempotency_key": _New("text", attrgetter("idempotency_key")),
    "metadata": _New("text", _metadata, "new.{name}::jsonb"),
    "schedule_id": _New("uuid", attrgetter("schedule_id"), is_at_the_doors=False),
    "run_at": _New("timestamptz", attrgetter("run_at"), None),
    "delay": _New("interval", attrgetter("delay"), None),
    "start_within": _New("interval", attrgetter("start_within"), None),
    "lane": _New("text", attrgetter("lane")),
    "unique_key": _New("text", _unique_key),
    "unique_scope": _New("text", _unique_scope),
}

# What the definition of a workflow has in JSON in place of a column of a job; None: nothing.
_DEFINED = {
    "id": None,
    "payload": "text",
    "metadata": "jsonb",
    "idempotency_key": None,
    "schedule_id": None,
    "delay": "float8",
    "start_within": "float8",
}
# The columns of a job in a workflow that are not as they are given there.
_OF_DEFINITION = {
    "id": "pulse.new_job_id_v1()",
    "payload": "decode(given.payload, 'base64')",
    "priority": "COALESCE(given.priority, 0)",
    "max_attempts": "{attempts_of_given}",
    "idempotency_key": "NULL::text",
    "schedule_id": "of_schedule",
    "run_at": "CASE WHEN {given_waits} THEN {without_end} ELSE given.run_at END",
    "delay": "CASE WHEN NOT {given_waits} THEN given.delay * interval '1 second' END",
    "start_within": "CASE WHEN NOT {given_waits} THEN given.start_within * interval '1 second' END",
}
# The columns in the definition of a workflow, with their types.
DEFINED = {
    name: kind for name, column in NEW_JOB.items() if (kind := _DEFINED.get(name, column.type)) is not None
}

# A job as it is read, without its payload, history, result and cursor, which may be large.
READ = (
    *("id", "topic", "status", "priority", "attempts", "run", "max_attempts", "submitted_at", "next_run_at"),
    *("ready", "delivered", "locked_by", "lease_until", "started_at", "finished_at", "finished_by"),
    *("last_error", "idempotency_key", "schedule_id", "metadata", "error_group", "snoozes", "crashes"),
    *("start_by", "unique_key", "unique_scope", "lane", "progress", "steps", "suspensions", "waits_for"),
    *("workflow_id", "held"),
)
_READ_OF_JOBS = {"ready": "{is_ready}", "progress": "job.progress - 'cursor'"}
_READ_OF_COMPLETED = {
    "status": "'COMPLETED'",
    "ready": "false",
    "locked_by": "NULL",
    "lease_until": "NULL",
    "error_group": "''",
    "start_by": "NULL",
    "unique_scope": "NULL",
    "progress": "NULL::jsonb",
    "steps": "jsonb_array_length(job.timeline)",
    "waits_for": "NULL",
    "held": "NULL::boolean",
}

# Columns that a completed job keeps unchanged.
MOVED = (
    *("id", "submitted_at", "next_run_at", "started_at", "priority", "attempts", "run", "max_attempts"),
    *("delivered", "topic", "payload", "idempotency_key", "schedule_id", "last_error", "metadata"),
    *("history", "snoozes", "crashes", "unique_key", "lane", "suspensions", "workflow_id"),
)


def fragments() -> dict[str, str]:
    """The fragments that are lists of columns."""
    stored = {name: column.stored for name, column in NEW_JOB.items() if column.stored is not None}
    return {
        "stored_columns": ", ".join(stored),
        "stored_of_new": ", ".join(expression.format(name=name) for name, expression in stored.items()),
        "replaced_columns": ", ".join(
            f"{name} = {expression.format(name=name)}"
            for name, expression in stored.items()
            if name in REPLACED
        ),
        "given_columns": ", ".join(NEW_JOB),
        "given_arrays": ", ".join(f":{name}::{_array_type(column)}" for name, column in NEW_JOB.items()),
        "given_job": ", ".join(_given(name, column) for name, column in NEW_JOB.items()),
        "lone_job": ", ".join(f":{name}::{column.type} AS {name}" for name, column in NEW_JOB.items()),
        "variable_job": ", ".join(_variable(name, column) for name, column in NEW_JOB.items()),
        "defined_columns": ", ".join(DEFINED),
        "defined_types": ", ".join(f"{name} {kind}" for name, kind in DEFINED.items()),
        "defined_job": ", ".join(map(_defined, NEW_JOB)),
        "job": ", ".join(_read(name, _READ_OF_JOBS) for name in READ),
        "completed_job": ", ".join(_read(name, _READ_OF_COMPLETED) for name in READ),
        "moved_columns": ", ".join(MOVED),
        "moved_of_job": ", ".join(f"job.{name}" for name in MOVED),
    }


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


def _array_type(column: _New) -> str:
    return column.array.format(type=column.type)


def _given(name: str, column: _New) -> str:
    """The column of a job in a batch. A shared value is only in the first entry of its array."""
    if not column.is_shared:
        return f"given.{name}"
    default = "" if column.default is None else f", {column.default}"
    return f"COALESCE(given.{name}, (:{name}::{column.type}[])[1]{default}) AS {name}"


def _variable(name: str, column: _New) -> str:
    return f"{name if column.is_at_the_doors else 'NULL'}::{column.type} AS {name}"


def _defined(name: str) -> str:
    return f"{_OF_DEFINITION[name]} AS {name}" if name in _OF_DEFINITION else f"given.{name}"


def _read(name: str, others: Mapping[str, str]) -> str:
    return f"{others[name]} AS {name}" if name in others else f"job.{name}"
