"""Long lists in slices: the event loop serves other tasks in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

# Entries to count and views to convert in one turn of the event loop: some 5 ms.
TURN_ENTRIES = 1000
TURN_VIEWS = 100

Entry = TypeVar("Entry")
Result = TypeVar("Result")


async def in_turns(entries: Sequence[Entry], size: int = TURN_ENTRIES) -> AsyncIterator[Sequence[Entry]]:
    """Yield the entries in slices, and let other tasks run after each."""
    for begin in range(0, len(entries), size):
        if begin:
            await asyncio.sleep(0)
        yield entries[begin : begin + size]


async def each_in_turns(
    convert: Callable[[Entry], Result], entries: Sequence[Entry], size: int = TURN_VIEWS
) -> list[Result]:
    """Convert each entry, and let other tasks run after each slice."""
    if len(entries) <= size:
        return [convert(entry) for entry in entries]
    results: list[Result] = []
    async for some in in_turns(entries, size):
        results += map(convert, some)
    return results
