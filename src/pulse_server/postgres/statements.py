"""Reads the .sql files: each section starts with `-- name: …` and is sent under that name."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_MARK = "-- name: "
_FRAGMENTS = ("fragments/jobs.sql", "fragments/schedules.sql", "fragments/work.sql")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@cache
def statements(*files: str) -> dict[str, str]:
    """The sections of these files in sql/, by name, each ready to be sent."""
    found: dict[str, str] = {}
    for file in files:
        for name, body in _sections(file).items():
            if name in found:
                raise ValueError(f"{file} has a section named {name}, and so has another file.")
            # The name is sent as a comment, so that pg_stat_activity shows which statement runs.
            found[name] = f"/* pulse:{name} */ {_with_fragments(body)}"
    return found


def _with_fragments(text: str) -> str:
    fragments = _fragments()
    return _PLACEHOLDER.sub(lambda found: _with_fragments(fragments[found[1]]), text)


@cache
def _fragments() -> dict[str, str]:
    found: dict[str, str] = {}
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
