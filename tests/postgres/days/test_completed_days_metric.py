"""The metric of the days ahead that have a partition."""

from __future__ import annotations

from datetime import date

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.base.metrics import Metrics
from pulse_server.database.connections import Database
from pulse_server.work.retention import DayKeeper, PostgresCompletedDayRepo
from tests.fakes.clock import Seconds
from tests.fakes.replica import Replica
from tests.postgres.completed_jobs import DAY
from tests.postgres.day_rounds import INTERVAL, WEEK, name
from tests.postgres.sessions import Connection


async def test_metric_counts_the_days_ahead_that_have_a_partition_and_time_that_passes(
    database: Database, connection: Connection
) -> None:
    metrics, seconds = Metrics(), Seconds()
    repo = PostgresCompletedDayRepo(database)
    keeper = DayKeeper(*(repo, Replica().publisher, WEEK), interval=INTERVAL, clock=seconds, metrics=metrics)
    assert metrics.completed_days_ahead.read() == {}

    while await keeper.tick() < INTERVAL:
        pass
    assert metrics.completed_days_ahead.read() == {(): 2}

    seconds.advance(DAY.total_seconds())
    assert metrics.completed_days_ahead.read() == {(): 1}
    seconds.advance(3 * DAY.total_seconds())
    assert metrics.completed_days_ahead.read() == {(): 0}


async def test_metric_shows_a_missing_day_if_no_day_can_be_added(
    database: Database, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics()
    repo = PostgresCompletedDayRepo(database)

    async def refused(_ahead: int) -> list[date]:
        raise Unavailable("The database role lacks a right.")

    monkeypatch.setattr(repo, "add_completed_days", refused)
    await connection.execute(f"DROP TABLE pulse.{name(-1)}")
    keeper = DayKeeper(repo, Replica().publisher, WEEK, interval=INTERVAL, metrics=metrics)

    await keeper.tick()
    with pytest.raises(Unavailable):
        await keeper.tick()

    assert metrics.completed_days_ahead.read() == {(): 0}
