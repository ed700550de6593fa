"""The keeper of the days over a real database."""

from __future__ import annotations

from datetime import timedelta

from pulse.topic_settings import Keep
from pulse_server.database.connections import Database
from pulse_server.topics.rules import Grace, Kept
from pulse_server.topics.store import PostgresTopicSettings
from pulse_server.work.retention import DayKeeper, PostgresCompletedDayRepo, partition_of
from tests.fakes.replica import Replica
from tests.postgres.completed_jobs import DAY, today

WEEK = 7 * DAY
INTERVAL = timedelta(minutes=5)


async def keep(database: Database, topic: str, kept: Keep, *, grace: timedelta = timedelta()) -> None:
    settings = PostgresTopicSettings(database, Grace(grace, {"keep_completed": WEEK}))
    await settings.set_topic(topic, {"keep_completed": kept}, (), "ada")


async def a_round(database: Database, kept: Kept = WEEK) -> None:
    keeper = DayKeeper(PostgresCompletedDayRepo(database), Replica().publisher, kept, interval=INTERVAL)
    for _ in range(200):
        if await keeper.tick() >= INTERVAL:
            return
    raise AssertionError("the round does not end")


def name(days_ago: int) -> str:
    """The partition of a day."""
    return partition_of(today() - days_ago * DAY)
