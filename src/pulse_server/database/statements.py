"""The columns of a job, and the statements in the .sql files."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import asyncpg


def metadata_to_json(metadata: Mapping[str, str] | None) -> str | None:
    return json.dumps(dict(metadata)) if metadata else None


# The fields that a waiting job takes over unchanged from the new job that replaces it.
REPLACED = ("payload", "priority", "metadata", "lane")


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
    """Whether the functions of database/interface/ have a variable with the value. Else they store NULL."""


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
    "id",
    "topic",
    "status",
    "priority",
    "attempts",
    "run",
    "max_attempts",
    "submitted_at",
    "next_run_at",
    "ready",
    "delivered",
    "locked_by",
    "lease_until",
    "started_at",
    "finished_at",
    "finished_by",
    "last_error",
    "idempotency_key",
    "schedule_id",
    "metadata",
    "error_group",
    "snoozes",
    "crashes",
    "start_by",
    "unique_key",
    "unique_scope",
    "lane",
    "progress",
    "steps",
    "suspensions",
    "waits_for",
    "workflow_id",
    "held",
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
    "id",
    "submitted_at",
    "next_run_at",
    "started_at",
    "priority",
    "attempts",
    "run",
    "max_attempts",
    "delivered",
    "topic",
    "payload",
    "idempotency_key",
    "schedule_id",
    "last_error",
    "metadata",
    "history",
    "snoozes",
    "crashes",
    "unique_key",
    "lane",
    "suspensions",
    "workflow_id",
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


Rows: TypeAlias = Sequence[asyncpg.Record]
Fetch: TypeAlias = Callable[..., Awaitable[Rows]]
"""Runs a statement with its arguments and returns its rows."""
Work: TypeAlias = Callable[[Fetch], Awaitable[Rows]]
"""Statements of one transaction. Returns the rows of the result."""

_MARK = "-- name: "
_FRAGMENTS = (
    "database/fragments/jobs.sql",
    "database/fragments/inserts.sql",
    "database/fragments/claims.sql",
    "database/fragments/workers.sql",
    "schedules/fragments.sql",
    "topics/fragments.sql",
    "work/fragments.sql",
    "workflows/fragments.sql",
)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_HEADER = re.compile(r"(\w+)(?:\((.*)\))?$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


@cache
def statements(*files: str) -> dict[str, str]:
    """The sections of these files, by name, ready to be sent. A file is named from pulse_server on."""
    found: dict[str, str] = {}
    for file in files:
        for header, body in _sections(file).items():
            name, parameters = _signature(header)
            if name in found:
                raise ValueError(f"{file} has a section named {name}, and so has another file.")
            text = _with_numbers(name, with_fragments(body), parameters)
            # The name is sent as a comment, so that pg_stat_activity shows which statement runs.
            found[name] = f"/* pulse:{name} */ {text}"
    return found


def _signature(header: str) -> tuple[str, list[str]]:
    """The name of a section, and its parameters."""
    found = _HEADER.match(header)
    if found is None:
        raise ValueError(f"A section cannot be named {header!r}.")
    names = [name.strip() for name in (found[2] or "").split(",") if name.strip()]
    return found[1], [one for name in names for one in (NEW_JOB if name == "*new_job" else [name])]


def _with_numbers(statement: str, text: str, parameters: list[str]) -> str:
    """The text with a number in place of each `:name`. Every parameter has to be used."""
    numbers = {name: f"${number}" for number, name in enumerate(parameters, 1)}
    used = set(_PARAMETER.findall(text))
    if used != numbers.keys():
        odd = ", ".join(sorted(used ^ numbers.keys()))
        raise ValueError(f"{statement} declares other parameters than it uses: {odd}.")
    return _PARAMETER.sub(lambda found: numbers[found[1]], text)


def with_fragments(text: str) -> str:
    """The text with each {name} replaced by the fragment of that name."""
    known = _fragments()
    return _PLACEHOLDER.sub(lambda found: with_fragments(known[found[1]]), text)


@cache
def _fragments() -> dict[str, str]:
    found = fragments()
    for file in _FRAGMENTS:
        sections = _sections(file)
        if twice := found.keys() & sections.keys():
            raise ValueError(f"{file} has a fragment named {min(twice)}, and so has another file.")
        found |= sections
    return found


@cache
def _sections(file: str) -> dict[str, str]:
    text = resources.files("pulse_server").joinpath(file).read_text(encoding="utf-8")
    sections: dict[str, str] = {}
    for part in text.split(_MARK)[1:]:
        name, body = part.split("\n", 1)
        name = name.strip()
        if name in sections:
            raise ValueError(f"{file} has two sections named {name}.")
        sections[name] = _without_comments(body)
    return sections


def _without_comments(body: str) -> str:
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
