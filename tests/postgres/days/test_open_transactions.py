"""A transaction of an application that has enqueued or completed stays open: what it delays. ADR-0075"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.database.connections import Database
from pulse_server.database.schema import Migration, apply_migrations, known_migrations
from pulse_server.jobs.new_jobs import Submitted, Unique
from pulse_server.jobs.rules import Claim
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.topics.store import PostgresLimitRepo
from pulse_server.work.retention import PostgresCompletedDayRepo
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.store import LEASE, Store, a_job, failure
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.completed_jobs import DAY, add_days, partitions, today
from tests.postgres.day_rounds import name
from tests.postgres.interface import complete, enqueue
from tests.postgres.limited import TOPIC, Limited, in_lane
from tests.postgres.sessions import Connection

OLD = 9
ENQUEUED: dict[str, dict[str, Any]] = {
    "plain": {"topic": "email"},
    "with a key": {"topic": "email", "key": "held"},
    "with a unique key": {"topic": "email", "unique_key": "held"},
    "in a lane": {"topic": "email", "lane": "held"},
    "of a limited topic": {"topic": TOPIC},
    "in a lane of a limited topic": {"topic": TOPIC, "lane": "a", "key": "held"},
}
COMPLETED = ["completed", "completed of a limited topic"]
HASTY = timedelta(milliseconds=300)


@pytest.fixture
async def limited(database: Database, connection: Connection) -> Limited:
    store = Store(PostgresJobRepo(database), PostgresTimeMachine(connection))
    return Limited(store, PostgresLimitRepo(database), connection)


@asynccontextmanager
async def session(dsn: str, application_name: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(
        dsn, timeout=60, command_timeout=60, server_settings={"application_name": application_name}
    )
    try:
        yield connection
    finally:
        connection.terminate()


@pytest.fixture
async def shop(database_dsn: str) -> AsyncIterator[Connection]:
    """A session of an application."""
    async with session(database_dsn, "shop") as connection:
        yield connection


@dataclass
class Work:
    """Jobs that run, of a plain topic and of a limited one."""

    plain: list[Claim]
    limited: list[Claim]


async def begin_work(limited: Limited) -> Work:
    await limited.limit_topic(running=20, per_lane=10)
    await limited.submit(*(a_job() for _ in range(5)), *(in_lane("a") for _ in range(5)))
    work = Work(await limited.store.claim(count=5), await limited.claim_all())
    assert (len(work.plain), len(work.limited)) == (5, 5)
    return work


async def hold(shop: Connection, kind: str, work: Work) -> None:
    if kind in ENQUEUED:
        await enqueue(shop, payload=b"1", **ENQUEUED[kind])
    else:
        await complete(shop, (work.plain if kind == "completed" else work.limited).pop())


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [record.__dict__ for record in caplog.records if record.getMessage() == event]


@pytest.mark.parametrize("kind", [*ENQUEUED, *COMPLETED])
async def test_claims_heartbeats_reports_submits_and_new_days_pass_an_open_transaction(
    limited: Limited, database: Database, shop: Connection, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    work, repo, days = await begin_work(limited), limited.store.repo, PostgresCompletedDayRepo(database)
    await add_days(limited.connection, OLD)
    async with asyncio.timeout(PATIENCE_SECONDS), shop.transaction():
        await hold(shop, kind, work)

        answers = [
            *await repo.insert_jobs([a_job()]),
            *await repo.insert_jobs(
                [a_job(), a_job(idempotency_key="free"), a_job(lane="held"), in_lane("a")]
            ),
            *await repo.insert_rich_jobs([a_job(unique=Unique("free"))]),
        ]
        assert all(isinstance(answer, Submitted) for answer in answers)
        assert len(await limited.store.claim(count=10)) == 5
        assert len(await limited.claim_all()) == 1
        for claims in (work.plain, work.limited):
            beaten, failing, done, *_ = claims
            assert (await repo.extend_leases([beaten], LEASE)).extended == {beaten}
            assert set(await repo.fail_jobs([failure(failing)])) == {failing}
            assert set(await repo.complete_jobs([done])) == {done}
        assert await days.add_completed_days(6)
        if kind in ENQUEUED:
            assert await days.drop_completed_day(today() - OLD * DAY, datetime.now(UTC)) is not None

    assert not logged(caplog, "lock_met")
    assert not logged(caplog, "rows_locked")


async def test_old_day_waits_for_a_completion_and_the_log_names_its_session(
    limited: Limited,
    database: Database,
    database_dsn: str,
    shop: Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An older transaction, which has enqueued, is not in the way and is not named."""
    work, days, old = await begin_work(limited), PostgresCompletedDayRepo(database), today() - OLD * DAY
    await add_days(limited.connection, OLD)
    async with session(database_dsn, "web") as web, web.transaction():
        await enqueue(web, topic="email", payload=b"1", key="k")
        async with shop.transaction():
            await hold(shop, "completed", work)
            await shop.execute("SELECT pg_sleep(0.2)")  # older than a lock has to be
            assert await days.drop_completed_day(old, datetime.now(UTC)) is None
        assert name(OLD) in await partitions(limited.connection)
        assert await days.drop_completed_day(old, datetime.now(UTC)) is not None

    (met,) = logged(caplog, "lock_met")
    assert (met["statement"], met["pid"]) == ("drop_completed_day", shop.get_server_pid())
    assert met["table"].startswith("pulse.completed_jobs")


async def test_migration_waits_and_names_the_session(
    database_dsn: str, shop: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_TIMEOUT", 2 * HASTY)
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_PAUSE", HASTY)
    monkeypatch.setattr("pulse_server.database.schema.MIGRATION_LOCK_TRIES", 2)
    later = [
        *known_migrations(),
        Migration(9001, "9001_later", "ALTER TABLE pulse.jobs ADD COLUMN later int;"),
    ]
    named = f"process {shop.get_server_pid()}"
    with caplog.at_level(logging.INFO, "pulse_server"):
        async with shop.transaction():
            await enqueue(shop, topic="email", payload=b"1")
            with pytest.raises(Unavailable, match=f"9001_later.*{named}.*shop"):
                await apply_migrations(database_dsn, later)

    assert named in logged(caplog, "migration_waits")[-1]["blocked_by"]
    assert await apply_migrations(database_dsn, later) == ["9001_later"]
