"""Reads the .sql files: each section starts with `-- name: …` and is sent under that name.

A section may name its parameters, as in `-- name: claim(topic, lease)`. Its text has them as `:topic` and
`:lease`, and they are sent in this order. `*new_job` stands for the columns of a new job.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib import resources
from typing import TypeAlias

import asyncpg

from pulse_server.postgres.columns import NEW_JOB, fragments

Rows: TypeAlias = Sequence[asyncpg.Record]
Fetch: TypeAlias = Callable[..., Awaitable[Rows]]
"""Runs a statement with its arguments and returns its rows."""
Work: TypeAlias = Callable[[Fetch], Awaitable[Rows]]
"""Statements of one transaction. Returns the rows of the result."""

_MARK = "-- name: "
_FRAGMENTS = tuple(
    f"fragments/{name}.sql"
    for name in ("jobs", "inserts", "claims", "work", "workers", "lanes", "schedules", "workflows")
)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_HEADER = re.compile(r"(\w+)(?:\((.*)\))?$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


@cache
def statements(*files: str) -> dict[str, str]:
    """The sections of these files in sql/, by name, ready to be sent."""
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
    text = resources.files("pulse_server.postgres").joinpath("sql", file).read_text(encoding="utf-8")
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
