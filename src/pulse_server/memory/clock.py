"""The clock of the store in memory. The test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_A_LOOK = timedelta(microseconds=1)


class ControlledClock:
    """Time for the in-memory store. Each reading is a microsecond after the last: no two are equal."""

    def __init__(self) -> None:
        self._now = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self._now += _A_LOOK
        return self._now

    def advance(self, duration: timedelta) -> None:
        self._now += duration
