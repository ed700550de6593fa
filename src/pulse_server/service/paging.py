"""Pages by key: a token names the entry after which the next page starts. Other changes do not shift it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.ids import parse_id
from pulse_server.domain.jobs import PageKey

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
