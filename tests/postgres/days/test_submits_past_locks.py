"""Another session holds a lock for long: on a day, on the lease checks, or on a key. Submits pass it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.base.ids import first_id_at, new_id
from pulse_server.database.connections import Database
from pulse_server.jobs.new_jobs import NewJob, OnConflict, Scope, Submitted, Unique
from pulse_server.jobs.reports import Taker
from pulse_server.jobs.rules import JobStatus
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.topics.store import PostgresLimitRepo
from tests.fakes.store import LEASE, Store, a_job, room
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.completed_jobs import add_days
from tests.postgres.day_rounds import name
from tests.postgres.sessions import Connection

UUID4 = "7f2c1f9e-4b6a-4c0e-9a53-0d9c1f7b2a11"


@pytest.fixture(params=[False, True], ids=["direct", "behind a pooler"])
async def store(
    request: pytest.FixtureRequest, database_dsn: str, connection: Connection
) -> AsyncIterator[Store]:
    database = Database(database_dsn, behind_pooler=request.param)
    yield Store(PostgresJobRepo(database), PostgresTimeMachine(connection))
    await database.close()


@pytest.fixture
async def other(database_dsn: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(
        database_dsn, timeout=60, command_timeout=60, server_settings={"application_name": "psql"}
    )
    yield connection
    connection.terminate()


@asynccontextmanager
async def locked(other: Connection, table: str) -> AsyncIterator[None]:
    """As VACUUM FULL and CLUSTER lock it."""
    async with other.transaction():
        await other.execute(f"LOCK TABLE pulse.{table} IN ACCESS EXCLUSIVE MODE")
        yield


def inserted(*jobs: NewJob) -> list[Submitted]:
    return [Submitted(job.id, False) for job in jobs]


def a_job_of_today(topic: str = "email", **changes: Any) -> NewJob:
    """A job whose repeats cannot have finished yesterday, not even shortly after midnight."""
    stamp = first_id_at(datetime.now(UTC) + timedelta(hours=2))
    return a_job(topic, id=stamp[:19] + new_id()[19:], **changes)


@pytest.mark.parametrize("table", ["a day", "completed_jobs_kept", "completed_jobs_default"])
async def test_lock_on_completed_jobs_of_another_day_stops_no_submit(
    store: Store, connection: Connection, other: Connection, table: str
) -> None:
    await add_days(connection, 9, 3, 1)
    repo, unique = store.repo, a_job_of_today(unique=Unique("shop-7"))
    lone, first, second = (a_job_of_today() for _ in range(3))
    lane, given = a_job_of_today(lane="a"), a_job_of_today("push")
    before = await store.reach(JobStatus.COMPLETED, id=a_job().id)

    async with locked(other, name(9) if table == "a day" else table):
        assert list(await repo.insert_jobs([lone])) == inserted(lone)
        assert list(await repo.insert_jobs([first, second])) == inserted(first, second)
        assert list(await repo.insert_jobs([lane])) == inserted(lane)
        assert list(await repo.insert_rich_jobs([unique])) == inserted(unique)
        (answer,) = await repo.hand_over_jobs([given], [Taker("A", False)], LEASE)
        assert isinstance(answer, Submitted)
        assert answer.job_id == given.id
        if table == "a day":
            repeats = [a_job(id=before), first, a_job_of_today()]
            assert await repo.insert_jobs(repeats) == [
                *(Submitted(before, True), Submitted(first.id, True), Submitted(repeats[2].id, False))
            ]
            assert await repo.insert_rich_jobs([unique]) == [Submitted(unique.id, True)]


async def test_jobs_that_may_repeat_one_of_a_locked_day_are_unavailable_alone(
    store: Store, connection: Connection, other: Connection
) -> None:
    await add_days(connection, 9)
    plain, keyed, any_id = a_job(), a_job(idempotency_key="k"), a_job(id=UUID4)
    both = a_job(idempotency_key="u", unique=Unique("shop-7"))

    async with locked(other, name(9)):
        answer, of_keyed, of_any_id = await store.repo.insert_jobs([plain, keyed, any_id])
        (of_both,) = await store.repo.insert_rich_jobs([both])

    assert answer == Submitted(plain.id, False)
    for refused in (of_keyed, of_any_id, of_both):
        assert isinstance(refused, Unavailable)
        assert "completed jobs" in str(refused)
    assert await store.repo.insert_jobs([keyed, any_id]) == inserted(keyed, any_id)


async def test_hand_over_that_meets_locked_lease_checks_stores_the_jobs(
    store: Store, other: Connection
) -> None:
    one, two, three = a_job(), a_job(), a_job()
    taker = Taker("A", False)

    async with locked(other, "lease_checks"):
        alone = await store.repo.hand_over_jobs([one], [taker], LEASE)
        together = await store.repo.hand_over_jobs([two, three], [taker, taker], LEASE)

    assert [*alone, *together] == inserted(one, two, three)
    assert {claim.job_id for claim in await store.claim(count=3)} == {one.id, two.id, three.id}


async def test_hand_over_of_a_limited_topic_that_meets_locked_lease_checks_stores_the_jobs(
    database: Database, store: Store, other: Connection
) -> None:
    limits = PostgresLimitRepo(database)
    await limits.limit_topic("email", {"running": 5, "per_lane": 1})
    one, two, three = (a_job(lane=lane) for lane in "abc")

    async with locked(other, "lease_checks"):
        alone = await limits.hand_over_limited("email", [one], room("A", 1), LEASE)
        together = await limits.hand_over_limited("email", [two, three], room("A", 2), LEASE)

    assert [*alone.answers, *together.answers] == inserted(one, two, three)
    assert (alone.claims.jobs, together.claims.jobs) == ([], [])
    claims = await limits.claim_limited(["email"], room("A", 3), LEASE)
    assert {job.id for job in claims.jobs} == {one.id, two.id, three.id}


HELD: dict[str, dict[str, Any]] = {
    "idempotency key": {"idempotency_key": "held"},
    "unique key": {"unique": Unique("held", Scope.LIVE)},
    "throttled key": {"unique": Unique("held", Scope.WAITING, OnConflict.THROTTLE, timedelta(hours=1))},
}


@pytest.mark.parametrize("kind", [*HELD, "id"])
async def test_only_jobs_with_a_key_that_an_open_transaction_holds_are_unavailable(
    store: Store, other: Connection, kind: str
) -> None:
    held = a_job(**HELD.get(kind, {}))
    keyed, plain = a_job(idempotency_key="free"), a_job()
    if held.unique is None:
        insert, jobs = store.repo.insert_jobs, [held, keyed, plain]
    else:
        keyed = a_job(unique=held.unique._replace(key="free"))
        insert, jobs = store.repo.insert_rich_jobs, [held, keyed]
    async with other.transaction():
        if kind == "throttled key":
            await other.execute(
                "INSERT INTO pulse.unique_periods VALUES ('email', 'held', now() - interval '1 h', $1)", UUID4
            )
        else:
            await other.execute(
                """INSERT INTO pulse.jobs (id, topic, payload, priority, max_attempts, submitted_at,
                                           next_run_at, queued, status, idempotency_key, unique_key,
                                           unique_scope)
                   VALUES ($1, 'email', '', 0, 1, now(), now(), true, 'PENDING', $2, $3, $4)""",
                *(held.id if kind == "id" else UUID4, held.idempotency_key),
                *((held.unique.key, held.unique.scope.value) if held.unique else (None, None)),
            )
        answer, *others = await insert(jobs)
        assert others == inserted(*jobs[1:])
        assert isinstance(answer, Unavailable)
        assert "transaction of another session" in str(answer)
        assert ("'held'" if kind != "id" else held.id) in str(answer)
        await other.execute("DELETE FROM pulse.jobs WHERE id = ANY($1::uuid[])", [UUID4, held.id])
    assert list(await insert([held])) == inserted(held)


async def test_log_names_the_session_that_holds_the_lock(
    store: Store, connection: Connection, other: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await add_days(connection, 9)
    with caplog.at_level(logging.WARNING, "pulse_server"):
        async with locked(other, name(9)):
            await store.submit(a_job())
            await store.submit(a_job())

    (record,) = [record for record in caplog.records if record.getMessage() == "lock_met"]
    facts = record.__dict__
    assert facts["statement"] == "insert_jobs"
    assert (facts["pid"], facts["application"]) == (other.get_server_pid(), "psql")
    assert (facts["state"], facts["lock"]) == ("idle in transaction", "AccessExclusiveLock")
    assert facts["table"] == f"pulse.{name(9)}"
