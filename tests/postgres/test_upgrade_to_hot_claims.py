"""Migration 0011 keeps jobs of every state. Servers from before it fail rather than run a job twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from pulse_server.domain.jobs import Claim, JobFilter
from pulse_server.domain.status import JobStatus
from pulse_server.postgres.database import Database
from pulse_server.postgres.jobs import PostgresJobRepo
from pulse_server.postgres.migrations.runner import apply_migrations
from pulse_server.postgres.overview import PostgresOverviewRepo
from tests.fakes.store import Store, room
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.release_before_0011 import (
    LEASE,
    STATEMENTS,
    WORKER,
    make_old_schema,
    old_claim,
    old_complete,
    old_servers_at_work,
    old_session,
    old_submit,
)
from tests.postgres.sessions import Connection

REFUSALS = (asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError, asyncpg.CheckViolationError)
# Two jobs in each state.
OLD_ROWS = """
INSERT INTO pulse.jobs
    (id, submitted_at, next_run_at, lease_until, started_at, finished_at, attempts, max_attempts, ready,
     delivered, status, topic, payload, locked_by, finished_by, last_error, error_group)
SELECT gen_random_uuid(), now(), now() + (NOT said.ready)::int * interval '1 h',
    CASE WHEN said.status = 'RUNNING' THEN now() + (n * 2 - 3) * interval '1 h' END, now(),
    CASE WHEN said.status IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED') THEN now() END, 1, 5, said.ready,
    true, said.status, said.topic, '', CASE WHEN said.status = 'RUNNING' THEN 'w' END,
    CASE WHEN said.status IN ('COMPLETED', 'DEAD_LETTERED') THEN 'w' END, 'boom',
    CASE WHEN said.status = 'DEAD_LETTERED' THEN 'group' ELSE '' END
FROM generate_series(1, 2) AS n, (VALUES
    ('ready', true, 'PENDING'), ('delayed', false, 'PENDING'), ('runs', false, 'RUNNING'),
    ('waits', false, 'RETRYING'), ('again', true, 'RETRYING'), ('done', false, 'COMPLETED'),
    ('dead', false, 'DEAD_LETTERED'), ('canceled', false, 'CANCELED')
) AS said (topic, ready, status)
"""


@pytest.fixture
async def old(empty_database_dsn: str) -> AsyncIterator[Connection]:
    """A session of a server from before the migration, on the schema of its time."""
    await make_old_schema(empty_database_dsn)
    connection = await old_session(empty_database_dsn)
    yield connection
    connection.terminate()


@pytest.fixture
async def database(empty_database_dsn: str) -> AsyncIterator[Database]:
    database = Database(empty_database_dsn)
    yield database
    await database.close()


async def test_jobs_of_every_state_are_as_they_were(
    empty_database_dsn: str, old: Connection, database: Database
) -> None:
    await old.execute(OLD_ROWS)
    facts = "SELECT id, status, attempts, locked_by, lease_until, finished_at FROM pulse.jobs ORDER BY id"
    file = "SELECT pg_relation_filenode('pulse.jobs')"
    before, before_file = await old.fetch(facts), await old.fetchval(file)

    await apply_migrations(empty_database_dsn)

    assert await old.fetch(facts) == before
    assert await old.fetchval(file) == before_file, "the table was rewritten"
    # An index that is built over updated rows is of no use while an older transaction is open.
    assert await old.fetchval("SELECT count(*) FROM pg_index WHERE indcheckxmin") == 0
    repo = PostgresJobRepo(database)
    for status in JobStatus:
        found = await repo.list_jobs(JobFilter(statuses=frozenset({status})), limit=9)
        topics = {"PENDING": 4, "RETRYING": 4}.get(status, 2)
        assert [job.status for job in found] == [status] * topics
        assert await repo.count_matching_jobs(JobFilter(statuses=frozenset({status}))) == topics
    depths = {depth.topic: depth for depth in await PostgresOverviewRepo(database).topic_depths()}
    assert [depths[topic].ready for topic in ("ready", "again", "runs", "waits")] == [2, 2, 0, 0]
    assert [depths["delayed"].waiting, depths["waits"].waiting, depths["runs"].running] == [2, 2, 2]
    assert [depths["dead"].dead_lettered, depths["canceled"].canceled] == [2, 2]
    assert len(await repo.claim_batch(list(depths), room("new", 99), LEASE)) == 4
    assert [entry.topic for entry in await repo.reap_expired(9)] == ["runs"]


@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() - {"extend_leases"}))
async def test_statement_from_before_fails_and_changes_nothing(
    postgres: Store, connection: Connection, name: str
) -> None:
    waiting = await postgres.reach(JobStatus.PENDING)
    held = Claim(await postgres.reach(JobStatus.RUNNING, topic="held"), "A", 1)
    last = Claim(await postgres.reach(JobStatus.RUNNING, topic="held", max_attempts=1), "A", 1)
    dead = await postgres.reach(JobStatus.DEAD_LETTERED, topic="dead")
    await postgres.time.lapse_leases(held.job_id, last.job_id)
    before = await connection.fetch("SELECT * FROM pulse.jobs ORDER BY id")

    with pytest.raises(REFUSALS):
        await connection.fetch(STATEMENTS[name], *_arguments(name, waiting, held, last, dead))

    assert await connection.fetch("SELECT * FROM pulse.jobs ORDER BY id") == before


def _arguments(name: str, waiting: str, held: Claim, last: Claim, dead: str) -> list[Any]:
    claims = [sorted([held.job_id, last.job_id]), ["A", "A"], [1, 1]]
    slots = [9, [1] * 9, ["old"], [False], LEASE, 2**23]
    new = [[dead[:-1] + "0"], ["email"], [b""], [0], [5], [], [], [], [], []]
    live, redrivable = ["PENDING", "RUNNING", "RETRYING"], ["DEAD_LETTERED", "CANCELED"]
    return {
        "insert_jobs": new,
        "hand_over_jobs": [*new, ["old"], [True], LEASE],
        "claim_batch": ["email", *slots],
        "claim_across_topics": [["email", "held"], *slots, 9, 9],
        "complete_jobs": claims,
        "fail_jobs": [*claims, ["boom"] * 2, [None] * 2, [False] * 2, [""] * 2],
        "release_jobs": [*claims, None],
        "reap_expired": [9, None, ""],
        "promote_due": [9],
        "promote_in_turn": [9, 9, "", 9],
        "cancel_jobs": [[waiting, held.job_id], "", live],
        "retry_jobs": [[dead], 5, redrivable],
        "prioritize_jobs": [[waiting], 7, live],
        "fire_now": [dead, dead],
        "topics_with_ready_jobs": ["email"],
        "look_up_jobs": [[waiting]],
    }[name]


async def test_heartbeat_of_a_server_from_before_is_stored(postgres: Store, connection: Connection) -> None:
    claim = await postgres.start("A")
    await postgres.time.lapse_leases(claim.job_id)

    stored = await connection.fetch(STATEMENTS["extend_leases"], [claim.job_id], ["A"], [1], LEASE)

    assert len(stored) == 1
    assert await postgres.repo.reap_expired(9) == []


async def test_job_that_a_server_from_before_claimed_is_neither_claimed_again_nor_lost(
    empty_database_dsn: str, old: Connection, database: Database
) -> None:
    await old_submit(old, 3)
    finished, lost, waiting = *(await old_claim(old, 2)), None
    await apply_migrations(empty_database_dsn)
    store = Store(PostgresJobRepo(database), PostgresTimeMachine(old))

    (waiting,) = await store.claim("new", count=9)
    assert waiting.job_id not in (finished, lost)
    with pytest.raises(asyncpg.CheckViolationError):
        await old_complete(old, [finished])
    claim = Claim(finished, WORKER, 1)  # its worker offers the result again, to a new server
    assert set(await store.repo.complete_jobs([claim])) == {claim}
    await store.time.lapse_leases(lost)
    assert [entry.claim.job_id for entry in await store.repo.reap_expired(9)] == [lost]


async def test_upgrade_beside_servers_from_before_at_work_runs_no_job_twice(
    empty_database_dsn: str, database: Database
) -> None:
    await make_old_schema(empty_database_dsn)
    repo, new_claims = PostgresJobRepo(database), []
    async with old_servers_at_work(empty_database_dsn) as servers:
        applied = await apply_migrations(empty_database_dsn)
        refused = sum(servers.failures.values())
        while True:
            claimed = await repo.claim_batch(["email"], room("new", 500), LEASE)
            new_claims += [Claim(job.id, "new", job.attempt) for job in claimed]
            if not claimed and sum(servers.failures.values()) > refused + 8:
                break
            await asyncio.sleep(0)
    await repo.complete_jobs(new_claims)

    assert "0011_hot_claims" in applied
    assert servers.failures.keys() <= {error.__name__ for error in REFUSALS} | {"InvalidCachedStatementError"}
    assert Counter([*servers.claimed, *(claim.job_id for claim in new_claims)]) == Counter(servers.submitted)
    # What the old servers could not store stays with its workers, and is still theirs.
    kept = [Claim(job_id, WORKER, 1) for job_id in set(servers.claimed) - set(servers.completed)]
    assert set(await repo.complete_jobs(kept)) == set(kept)
    assert await repo.count_matching_jobs(JobFilter(statuses=frozenset({JobStatus.COMPLETED}))) == len(
        servers.submitted
    )
