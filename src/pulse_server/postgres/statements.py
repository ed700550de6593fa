"""Reads the .sql files: each section starts with `-- name: …` and is sent under that name."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_MARK = "-- name: "
_FRAGMENTS = "fragments.sql"
_PLACE = re.compile(r"\{(\w+)\}")


@cache
def statements(file: str) -> dict[str, str]:
    """The sections of one file in sql/, by name, each ready to be sent."""
    fragments = _sections(_FRAGMENTS)
    return {
        # The name goes along as a comment, so that pg_stat_activity tells which statement runs.
        name: f"/* pulse:{name} */ {_PLACE.sub(lambda place: fragments[place[1]], body)}"
        for name, body in _sections(file).items()
    }


@cache
def _sections(file: str) -> dict[str, str]:
    text = resources.files("pulse_server.postgres").joinpath("sql", file).read_text(encoding="utf-8")
    sections: dict[str, str] = {}
    for part in text.split(_MARK)[1:]:
        name, body = part.split("\n", 1)
        name = name.strip()
        if name in sections:
            raise ValueError(f"{file} has two sections named {name}")
        sections[name] = _without_comments(body)
    return sections


def _without_comments(body: str) -> str:
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
