"""Another topic's due job waits for no more than a few statements, whatever one topic has due."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from pulse_server.database.connections import Database
from pulse_server.jobs.reports import Promotion, Turn
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.work.submissions import PROMOTE_BATCH, PROMOTE_TOPICS, Promoter
from tests.fakes.replica import Replica
from tests.postgres.sessions import Connection

FLOOD = 8 * PROMOTE_BATCH


class RecordingRepo(PostgresJobRepo):
    """Keeps the topics that each statement promoted."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.promoted: list[frozenset[str]] = []

    async def promote_due(self, limit: int) -> Promotion:
        promotion = await super().promote_due(limit)
        self.promoted.append(promotion.topics)
        return promotion

    async def promote_in_turn(
        self, limit: int, *, of_each_topic: int, after_topic: str, topics_looked_at: int
    ) -> Turn:
        turn = await super().promote_in_turn(
            limit, of_each_topic=of_each_topic, after_topic=after_topic, topics_looked_at=topics_looked_at
        )
        self.promoted.append(turn.topics)
        return turn


@pytest.fixture
async def repo(shared_dsn: str) -> AsyncIterator[RecordingRepo]:
    database = Database(shared_dsn)
    yield RecordingRepo(database)
    await database.close()


async def add_waiting(connection: Connection, topic: str, count: int, due_in: str) -> None:
    """Delayed jobs. `topic` is an SQL expression over n, the number of each."""
    await connection.execute(
        f"""INSERT INTO pulse.jobs
            (id, topic, payload, max_attempts, submitted_at, next_run_at, queued, status)
        SELECT gen_random_uuid(), {topic}, '', 5, now(), now() + interval '{due_in}', false, 'PENDING'
        FROM generate_series(1, {count}) AS n"""
    )


@pytest.mark.parametrize("topics", [0, 5000], ids=["alone", "among topics with jobs for later"])
async def test_due_job_waits_for_a_few_statements_whatever_one_topic_has_due(
    repo: RecordingRepo, connection: Connection, topics: int
) -> None:
    await add_waiting(connection, "'m-flood'", FLOOD, "-1 hour")
    await add_waiting(connection, "'later-' || n", topics, "1 hour")
    await add_waiting(connection, "'z-mail'", 1, "-1 ms")

    await Promoter(repo, Replica().publisher, interval=timedelta(seconds=1)).tick()

    statements = next(number for number, topics in enumerate(repo.promoted, 1) if "z-mail" in topics)
    assert statements <= 2 * (1 + topics // PROMOTE_TOPICS)
    assert await connection.fetchval("SELECT count(*) FROM pulse.jobs WHERE queued") == FLOOD + 1
