"""Ids of jobs, schedules and servers: UUIDv7, so that neighbours in time are neighbours in the index."""

from __future__ import annotations

import re
from uuid import UUID

import uuid_utils

from pulse_server.domain.errors import InvalidArgument

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHOWN_CHARACTERS = 36


def new_id() -> str:
    return str(uuid_utils.uuid7())


def parse_id(text: str, field: str = "job_id") -> str:
    """The id in its canonical form, or InvalidArgument."""
    if _CANONICAL.fullmatch(text):
        return text
    if not text:
        raise InvalidArgument(field, f"is empty: give the id of a {_noun(field)}.")
    try:
        return str(UUID(text))
    except ValueError:
        shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
        raise InvalidArgument(field, f"{shown!r} is not a {_noun(field)} id. Ids are UUIDs.") from None


def _noun(field: str) -> str:
    return "schedule" if field == "schedule_id" else "job"
