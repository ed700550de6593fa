"""Ids of jobs, schedules and servers: UUIDv7, so that ids made together lie together in the index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import uuid_utils

from pulse_server.domain.errors import InvalidArgument

_CANONICAL = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SHOWN_CHARACTERS = 36
_VERSION = 14  # where its digit is in the canonical form
_VERSION_BYTE = 6  # where it is among the 16 bytes
_VERSION_OF_FIRES = "5"
_VERSION_WITH_STAMP = "7"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_STAMP = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


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


def parse_new_id(text: str) -> str:
    """The id that a caller chose for a new job, in its canonical form, or InvalidArgument.

    Fires of schedules have ids of version 5, derived from public facts. A caller that used such an
    id would keep the occurrence from firing. ADR-0018
    """
    parsed = parse_id(text)
    if parsed[_VERSION] == _VERSION_OF_FIRES:
        raise InvalidArgument(
            "job_id",
            "is a UUID of version 5, and those belong to the fires of schedules. Take version 7 or 4; for a "
            "job that must be stored once under a name of yours, give an idempotency_key.",
        )
    return parsed


def has_version_of_fires(ids: bytes) -> bool:
    """Whether one of the ids, 16 bytes each, is refused by parse_new_id. Any other 16 bytes are an id."""
    return any(byte >> 4 == int(_VERSION_OF_FIRES) for byte in set(ids[_VERSION_BYTE::16]))


def is_stamped(canonical: str) -> bool:
    """Whether the id begins with the time at which it was made, by the clock of its maker."""
    return canonical[_VERSION] == _VERSION_WITH_STAMP


def earliest_stamp(ids: Sequence[str]) -> int | None:
    """The earliest time stamped into these ids, all with dashes or all without; None if one has none.

    In milliseconds since 1970.
    """
    version = _VERSION if ids and "-" in ids[0] else _VERSION - 2
    if {one[version] for one in ids} != {_VERSION_WITH_STAMP}:
        return None
    milliseconds = int(min(ids).replace("-", "")[:12], 16)
    return milliseconds if milliseconds < _LAST_STAMP else None


def first_id_at(moment: datetime) -> str:
    """The least id that is stamped with this moment, or a later one."""
    digits = f"{(moment - _EPOCH) // timedelta(milliseconds=1):012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


def _noun(field: str) -> str:
    return {"schedule_id": "schedule", "signal_id": "signal", "action_id": "valid action"}.get(field, "job")
