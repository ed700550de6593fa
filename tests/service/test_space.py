"""A full disk: when it is known, what is logged, and when it is over."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.base.errors import ResourceExhausted, Unavailable
from pulse_server.base.metrics import Metrics
from pulse_server.views import vitals
from pulse_server.views.vitals import Space


class Disk:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.metrics = Metrics()
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.space = Space(self._probe, self.metrics, lambda: self.now, interval=timedelta(seconds=15))

    async def _probe(self) -> None:
        if self.error is not None:
            raise self.error

    @property
    def gauge(self) -> float:
        return self.metrics.database_full.read()[()]


@pytest.fixture
def disk(caplog: pytest.LogCaptureFixture) -> Disk:
    caplog.set_level(logging.INFO, "pulse_server.views.vitals")
    return Disk()


async def test_full_disk_is_logged_once_until_it_has_space(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.error = ResourceExhausted("The database has no room left.")
    for _ in range(3):
        await disk.space.tick()
        disk.now += timedelta(seconds=15)
    assert disk.gauge == 1
    assert disk.space.full_since == disk.now - 3 * timedelta(seconds=15)
    disk.error = None
    await disk.space.tick()

    assert disk.gauge == 0
    assert disk.space.full_since is None
    assert [record.message for record in caplog.records] == ["database_full", "database_has_space"]


async def test_refused_statements_count_where_temporary_files_are_on_another_disk(disk: Disk) -> None:
    disk.metrics.statements_without_space.add()
    await disk.space.tick()
    assert disk.gauge == 1
    await disk.space.tick()
    assert disk.gauge == 0


async def test_reminder_is_logged_while_it_lasts(
    disk: Disk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "REMINDER", timedelta(0))
    disk.error = ResourceExhausted("The database has no room left.")
    for _ in range(2):
        await disk.space.tick()

    assert [record.message for record in caplog.records] == ["database_full"] * 2


async def test_database_that_is_away_is_not_full(disk: Disk) -> None:
    disk.error = Unavailable("The database did not answer.")
    with pytest.raises(Unavailable):
        await disk.space.tick()

    assert disk.gauge == 0
