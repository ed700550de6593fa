"""The loop that takes arrivals continues beside a locked row, and spreads its looks."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.publisher import Publisher
from pulse_server.jobs.reports import Arrival
from pulse_server.work.submissions import ARRIVALS_BATCH, Arrivals

ARRIVAL = Arrival("mail", 1, ["a"])


class RecordingPublisher:
    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []

    def arrived(self, arrivals: Any, _seconds: float) -> None:
        self.arrivals += arrivals


class FakeRepo:
    def __init__(self, *batches: list[Arrival]) -> None:
        self._batches = [*batches]
        self.defaults: list[tuple[int, int]] = []
        self.is_locked = False

    async def take_arrivals(self, most: int) -> list[Arrival]:
        assert most == ARRIVALS_BATCH
        return self._batches.pop(0) if self._batches else []

    async def record_defaults(self, *defaults: int) -> None:
        if self.is_locked:
            raise Unavailable("The row is locked by another session. Try again.")
        self.defaults.append((defaults[0], defaults[1]))


def arrivals_of(repo: FakeRepo, publisher: RecordingPublisher) -> Arrivals:
    return Arrivals(repo, cast("Publisher", publisher), max_attempts=7, max_result_bytes=100)


async def test_arrivals_are_published_while_the_row_of_the_settings_is_locked() -> None:
    repo, publisher = FakeRepo([ARRIVAL], [ARRIVAL]), RecordingPublisher()
    repo.is_locked = True
    arrivals = arrivals_of(repo, publisher)

    for _ in range(2):
        with pytest.raises(Unavailable):
            await arrivals.tick()
    assert publisher.arrivals == [ARRIVAL, ARRIVAL]

    repo.is_locked = False
    await arrivals.tick()
    await arrivals.tick()
    assert repo.defaults == [(7, 100)], "once"


async def test_full_batch_is_followed_by_another_in_the_same_tick() -> None:
    repo, publisher = FakeRepo([ARRIVAL] * ARRIVALS_BATCH, [ARRIVAL]), RecordingPublisher()

    await arrivals_of(repo, publisher).tick()

    assert len(publisher.arrivals) == ARRIVALS_BATCH + 1


async def test_looks_that_are_asked_for_at_once_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("pulse_server.work.submissions.asyncio.sleep", sleep)
    monkeypatch.setattr("pulse_server.work.submissions.lease_clock", lambda: 5.0)
    arrivals = arrivals_of(FakeRepo(), RecordingPublisher())

    await arrivals.tick()
    await arrivals.tick()

    first, second = pauses
    assert first < 0 < second <= 0.02001
