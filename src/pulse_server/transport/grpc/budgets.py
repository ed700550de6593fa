"""Bytes that calls take while they are under way: so many in all, and so many for one caller. ADR-0038"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pulse_server.domain.errors import ResourceExhausted


class Budget:
    """Nothing waits for room: what does not fit is refused with the sentence."""

    def __init__(self, most: int, *, of_one: int, refusal: str) -> None:
        self._most = most
        self._of_one = of_one
        self._refusal = refusal
        self._taken: Counter[str] = Counter()
        self._count = 0

    def has_room(self, caller: str, count: int) -> bool:
        return self._count + count <= self._most and self._taken[caller] + count <= self._of_one

    @contextmanager
    def taken(self, caller: str, count: int) -> Iterator[None]:
        """Take so many bytes for as long as the block lasts. ResourceExhausted if there is no room."""
        if not self.has_room(caller, count):
            raise ResourceExhausted(self._refusal)
        self._count += count
        self._taken[caller] += count
        try:
            yield
        finally:
            self._count -= count
            self._taken[caller] -= count
            if not self._taken[caller]:
                del self._taken[caller]
