"""Bounds the bytes of calls in progress, in total and per caller. ADR-0038"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pulse_server.domain.errors import ResourceExhausted


class Budget:
    """Calls do not wait: what exceeds the budget is refused with `refusal`."""

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
        """Reserve the bytes while the block runs. Raises ResourceExhausted if they exceed the budget."""
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
