"""The store in memory that records its calls, and can be away."""

from __future__ import annotations

from typing import Any

from pulse_server.domain.errors import Unavailable
from pulse_server.memory.jobs import InMemoryJobRepo


class FakeJobRepo(InMemoryJobRepo):
    """`is_away` makes every method raise Unavailable; `calls` holds the names of the called methods."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.is_away = False
        self.calls: list[str] = []

    def answer(self, name: str) -> None:
        self.calls.append(name)
        if self.is_away:
            raise Unavailable("The database did not answer. Try again.")
