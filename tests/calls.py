"""Counts the calls of a method, and lets it fail."""

from __future__ import annotations

from typing import Any

import pytest

from pulse_server.base.errors import Unavailable


class Calls:
    """Replaces the method of an object. `count` grows with each call; `is_away`: each call fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, target: Any, name: str) -> None:
        self.count = 0
        self.is_away = False
        method = getattr(target, name)

        async def counted(*args: Any, **named: Any) -> Any:
            if self.is_away:
                raise Unavailable("The database did not answer.")
            self.count += 1
            return await method(*args, **named)

        monkeypatch.setattr(target, name, counted)
