"""Jittered exponential backoff, and the loop of everything that tries again."""

from __future__ import annotations

import asyncio
import math
import time
from random import uniform
from typing import Self


class Backoff:
    """Waits that double from the first to the longest, each drawn at random from its upper half.

    The jitter spreads a fleet of clients that lost its server at one instant.

    `async for _ in Backoff(…)` makes one pass for each try and waits between two tries. It ends
    when the next try would begin at `deadline` or later, by `time.monotonic()`.
    """

    __slots__ = ("_deadline", "_first_seconds", "_is_begun", "_longest_seconds", "_tries")

    def __init__(self, first_seconds: float, longest_seconds: float, deadline: float = math.inf) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._deadline = deadline
        self._tries = 0
        self._is_begun = False

    def next_seconds(self) -> float:
        """Return how long to wait before the next try."""
        # The exponent is capped so that a year of failures does not overflow a float.
        ceiling = min(self._longest_seconds, self._first_seconds * 2 ** min(self._tries, 32))
        self._tries += 1
        return uniform(ceiling / 2, ceiling)

    def reset(self) -> None:
        """Begin again with the first wait."""
        self._tries = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            return
        wait_seconds = self.next_seconds()
        if self._deadline - time.monotonic() <= wait_seconds:
            raise StopAsyncIteration
        await asyncio.sleep(wait_seconds)
