"""Ids of jobs, schedules and servers, tokens of pages, and what is derived from the secret of a queue.

Ids are UUIDv7, so that ids made together lie together in the index. A token names the entry after which the
next page starts: other changes do not shift it.

The secret is a row of pulse.cluster_secret, which only roles that serve can read. A value is derived for each
purpose; values of one purpose reveal nothing about those of another. ADR-0084
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Generic, TypeVar
from uuid import UUID

import uuid_utils

from pulse_server.base.errors import InvalidArgument

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


# Of a derived value. Half of a SHA-256, because a caller who knows a whole one can continue it.
_BYTES = 16
_SEAL_CHARACTERS = 2 * _BYTES


def completion_key(secret: bytes, worker_id: str) -> bytes:
    """The key that a worker gets with its stream. The worker id is as it is stored.

    From it the SDK makes the token of a claim, which pulse.complete_job computes and compares.
    """
    return _derived(b"completion:", secret, worker_id.encode())


class Seal:
    """Names the channel between the servers of a queue, and seals their messages.

    Any role of the database can notify on any channel whose name it knows. Without the secret it can neither
    make a message that opens, nor send one again: a seal is good for one session of the database.
    """

    def __init__(self, secret: bytes) -> None:
        self.channel = f"pulse_{_derived(b'channel:', secret).hex()}"
        self._key = _derived(b"messages:", secret)

    def sealed(self, message: str, pid: int) -> str:
        """The message as the session with this process id may send it."""
        return self._seal(message, pid) + message

    def opened(self, payload: str, pid: int) -> str | None:
        """The message that the session with this process id has sent. None: it is no server's."""
        message = payload[_SEAL_CHARACTERS:]
        seal = payload[:_SEAL_CHARACTERS].encode()
        return message if hmac.compare_digest(seal, self._seal(message, pid).encode()) else None

    def _seal(self, message: str, pid: int) -> str:
        return hmac.digest(self._key, f"{pid}:{message}".encode(), "sha256")[:_BYTES].hex()


def _derived(purpose: bytes, secret: bytes, name: bytes = b"") -> bytes:
    return sha256(purpose + secret + name).digest()[:_BYTES]


@dataclass(frozen=True, slots=True)
class PageKey:
    """Where a page ended: the next one starts after the job or schedule of this moment and id."""

    moment: datetime
    id: str


# Errors and metadata of one page; a default gRPC client receives 4 MiB.
PAGE_BYTES = 3 * 1024 * 1024

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Page(Generic[Entry]):
    entries: list[Entry]
    next_token: str
    looked_back_to: datetime | None = None
    """Where a bounded search ended before the page was full. The token continues there."""


async def page_of(
    read: Callable[[int, PageKey | None], Awaitable[list[Entry]]],
    limit: int,
    token: str,
    *,
    key: Callable[[Entry], PageKey],
    weight: Callable[[Entry], int],
) -> Page[Entry]:
    """Read one page. It reads one entry more than requested, to know whether there is a next page.

    A page of large entries ends early, because a default gRPC client receives 4 MiB at the most.
    """
    entries = await read(limit + 1, decode_token(token) if token else None)
    count = fitting(map(weight, entries[:limit]))
    if count == len(entries):
        return Page(entries, "")
    return Page(entries[:count], encode_token(key(entries[count - 1])))


def text_weight(metadata: Mapping[str, str], *texts: str | None) -> int:
    """Return the bytes that the texts take at the most."""
    return 4 * (sum(len(key + value) for key, value in metadata.items()) + sum(len(t or "") for t in texts))


def fitting(weights: Iterable[int]) -> int:
    """Return how many of the entries fit into one answer; at least one."""
    size = count = 0
    for weight in weights:
        size += weight
        if size > PAGE_BYTES and count:
            break
        count += 1
    return count


def encode_token(key: PageKey) -> str:
    return base64.urlsafe_b64encode(f"{key.moment.isoformat()}|{key.id}".encode()).decode()


def decode_token(token: str) -> PageKey:
    try:
        text, _, entry_id = base64.urlsafe_b64decode(token.encode()).decode().partition("|")
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("no time zone")
        return PageKey(moment.astimezone(UTC), parse_id(entry_id))
    except (ValueError, OverflowError, binascii.Error, InvalidArgument):
        raise _unknown_token() from None


def encode_name(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def decode_name(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise _unknown_token() from None


def _unknown_token() -> InvalidArgument:
    return InvalidArgument("page_token", "is not one that this server gave out.")
