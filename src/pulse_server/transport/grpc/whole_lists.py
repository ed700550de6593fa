"""Whole lists, for callers of the original contract, which has neither limit nor page token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from google.protobuf.message import Message

from pulse_server.base.errors import ResourceExhausted
from pulse_server.base.ids import Page
from pulse_server.base.loops import TURN_VIEWS, in_turns

# A list that is requested without a limit. A default gRPC client receives 4 MiB.
WHOLE_LIST_BYTES = 4 * 1024 * 1024 - 1024

Entry = TypeVar("Entry")
View = TypeVar("View", bound=Message)

# The number and the length before each entry of a repeated field.
_FRAME_BYTES = 6


async def whole_list(
    read_page: Callable[[str], Awaitable[Page[Entry]]], view: Callable[[Entry], View]
) -> list[View]:
    """Read all pages. Raises ResourceExhausted if they do not fit in one response.

    A caller that knows no page token would take a part of the list for the whole. Memory is bounded by one
    response and one page.
    """
    views: list[View] = []
    size, token = 0, ""
    while True:
        page = await read_page(token)
        async for some in in_turns(page.entries, TURN_VIEWS):
            found = [view(entry) for entry in some]
            views += found
            size += sum(one.ByteSize() + _FRAME_BYTES for one in found)
            if size > WHOLE_LIST_BYTES:
                raise ResourceExhausted(
                    "The list is longer than one answer can carry (4 MiB). "
                    "Set limit, and follow next_page_token."
                )
        if not page.next_token:
            return views
        token = page.next_token
