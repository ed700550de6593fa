"""The keeper of the days over a real database."""

from __future__ import annotations

from datetime import timedelta

from pulse_server.domain.policies import Grace, Kept, PolicyChange
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.completed_days import PostgresCompletedDayRepo, partition_of
from pulse_server.postgres.database import Database
from pulse_server.postgres.policies import PostgresPolicyRepo
from pulse_server.upkeep.completed_days import DayKeeper
from tests.fakes.replica import Replica
from tests.postgres.completed_jobs import DAY, today

WEEK = 7 * DAY
INTERVAL = timedelta(minutes=5)


async def set_policy(database: Database, topic: str, kept: Kept, *, grace: timedelta = timedelta()) -> None:
    change = PolicyChange({JobStatus.COMPLETED: kept})
    policies = PostgresPolicyRepo(database, Grace(grace, {JobStatus.COMPLETED: WEEK}))
    await policies.set_policy(topic, change, "ada")


async def a_round(database: Database, kept: Kept = WEEK) -> None:
    keeper = DayKeeper(PostgresCompletedDayRepo(database), Replica().publisher, kept, interval=INTERVAL)
    for _ in range(200):
        if await keeper.tick() >= INTERVAL:
            return
    raise AssertionError("the round does not end")


def name(days_ago: int) -> str:
    """The partition of a day."""
    return partition_of(today() - days_ago * DAY)
