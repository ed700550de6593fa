"""A clock that moves only when it is told to, but never stands still between two looks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_A_LOOK = timedelta(microseconds=1)


class ControlledClock:
    """Time for the in-memory store. Each look is a microsecond after the last, so that no two are equal."""

    def __init__(self) -> None:
        self._now = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self._now += _A_LOOK
        return self._now

    def advance(self, duration: timedelta) -> None:
        self._now += duration


class Seconds:
    """A monotonic clock in seconds, for services that take one."""

    def __init__(self, start: float = 5000.0) -> None:
        self.value = start

    def __call__(self) -> float:
        return self.value

    def advance(self, seconds: float) -> None:
        self.value += seconds
