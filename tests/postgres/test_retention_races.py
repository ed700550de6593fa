"""Retention against other changes of the same rows, and against any mix of jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Database
from pulse_server.jobs.reads import THE_BEGINNING
from pulse_server.jobs.rules import REDRIVABLE, TERMINAL, JobStatus
from pulse_server.jobs.store import _SQL
from pulse_server.work.retention import _SQL as RETENTION_SQL
from pulse_server.work.retention import ExpiredJobs
from tests.fakes.store import Store
from tests.postgres.sessions import Connection, blocked
from tests.postgres_cluster import Databases

pytestmark = pytest.mark.usefixtures("patience_of_a_busy_machine")

DAY = timedelta(days=1)
KEPT = {JobStatus.DEAD_LETTERED: 30 * DAY}
# The arguments of the statement for these: from the beginning, ten jobs.
ARGUMENTS = (None, None, 30 * DAY, 30 * DAY, THE_BEGINNING.moment, THE_BEGINNING.id, 10)
LOCK = "pulse.try_lock_v1('retention')"


@pytest.fixture
async def retention(shared_dsn: str) -> AsyncIterator[ExpiredJobs]:
    database = Database(shared_dsn)
    yield ExpiredJobs(database)
    await database.close()


async def an_old_dead_letter(store: Store) -> str:
    job_id = await store.reach(JobStatus.DEAD_LETTERED)
    await store.time.age(job_id, submitted=40 * DAY, finished=39 * DAY)
    return job_id


async def test_redrive_that_is_under_way_is_not_waited_for_and_wins(
    store: Store, retention: ExpiredJobs, second_connection: Connection
) -> None:
    job_id = await an_old_dead_letter(store)
    await second_connection.execute("BEGIN")
    assert await second_connection.fetch(
        _SQL["retry_jobs"], [job_id], 1, list(REDRIVABLE), False, DAY, False, None
    )

    swept = await retention.delete_expired(KEPT, after=None, limit=10)
    await second_connection.execute("COMMIT")

    assert (swept.looked_at, swept.deleted) == (1, {})
    assert await store.status(job_id) is JobStatus.PENDING


async def test_redrive_that_is_committed_while_the_walk_has_its_old_view_wins(
    store: Store, connection: Connection, second_connection: Connection, shared_dsn: str
) -> None:
    """The statement saw a dead letter when it began; what it locks is a job that waits."""
    job_id = await an_old_dead_letter(store)
    await second_connection.execute("SELECT pg_advisory_lock(1)")
    slow = RETENTION_SQL["delete_expired"].replace(LOCK, "(SELECT true FROM pg_advisory_xact_lock(1))")
    assert slow != RETENTION_SQL["delete_expired"]
    sweeper = await asyncpg.connect(shared_dsn, timeout=60)
    sweep = await blocked(connection, sweeper.fetchrow(slow, *ARGUMENTS))

    assert await store.repo.retry_jobs([job_id], 1)
    await second_connection.execute("SELECT pg_advisory_unlock(1)")
    row = await sweep
    await sweeper.close()

    assert (row["looked_at"], row["dead_lettered"]) == (1, 0)
    assert await store.status(job_id) is JobStatus.PENDING


async def test_redrive_that_comes_second_finds_no_job(
    store: Store, connection: Connection, second_connection: Connection
) -> None:
    job_id = await an_old_dead_letter(store)
    await second_connection.execute("BEGIN")
    await second_connection.fetch(RETENTION_SQL["delete_expired"], *ARGUMENTS)

    redrive = await blocked(connection, store.repo.retry_jobs([job_id], 1))
    await second_connection.execute("COMMIT")

    assert await redrive == []
    assert await store.repo.get_job(job_id) is None


async def test_replica_that_comes_second_leaves_the_walk_to_the_first(
    store: Store, retention: ExpiredJobs, second_connection: Connection
) -> None:
    job_id = await an_old_dead_letter(store)
    await second_connection.execute(f"BEGIN; SELECT {LOCK}")

    swept = await retention.delete_expired(KEPT, after=None, limit=10)

    assert (swept.is_taken, swept.looked_at) == (True, 0)
    assert await store.repo.get_job(job_id) is not None
    await second_connection.execute("ROLLBACK")
    assert (await retention.delete_expired(KEPT, after=None, limit=10)).deleted


# --- any mix

spans = st.integers(0, 12).map(lambda number: timedelta(hours=number, minutes=30))


@dataclass(frozen=True)
class Row:
    status: JobStatus
    submitted: timedelta
    finished: timedelta


rows = st.builds(Row, st.sampled_from(list(JobStatus)), spans, spans)
# Full hours, the ages half past: nothing is so close to the border that the test's own time matters.
durations = st.integers(1, 12).map(lambda number: timedelta(hours=number))
kept = st.dictionaries(st.sampled_from(sorted(TERMINAL)), durations, min_size=1)


def test_whatever_the_mix_exactly_what_is_finished_and_old_enough_is_deleted(
    databases: Databases, template_database: str
) -> None:
    with databases.temporary(template_database) as dsn, asyncio.Runner() as runner:
        database = Database(dsn)
        connection = runner.run(asyncpg.connect(dsn, timeout=60))

        @settings(max_examples=80)
        @given(table=st.lists(rows, max_size=12), kept=kept, limit=st.integers(1, 5))
        def check(table: list[Row], kept: dict[JobStatus, timedelta], limit: int) -> None:
            runner.run(_fill(connection, table))
            swept, left = runner.run(_walk(database, connection, kept, limit))

            expired = {
                number
                for number, row in enumerate(table)
                if row.status in kept and min(row.finished, row.submitted) > kept[row.status]
            }
            assert left == set(range(len(table))) - expired
            assert swept == Counter(table[number].status for number in expired)

        check()
        runner.run(connection.close())
        runner.run(database.close())


async def _fill(connection: Connection, table: list[Row]) -> None:
    await connection.execute("TRUNCATE pulse.jobs")
    await connection.executemany(
        """
        INSERT INTO pulse.jobs (id, submitted_at, next_run_at, lease_until, finished_at, attempts,
                                max_attempts, queued, status, topic, payload, locked_by, ended_as)
        SELECT gen_random_uuid(), now() - $2::interval, now(),
               CASE WHEN $1 = 'RUNNING' THEN now() END,
               CASE WHEN $1 IN ('COMPLETED', 'CANCELED', 'DEAD_LETTERED')
                   THEN now() - LEAST($2::interval, $3::interval) END,
               1, 5, $1 = 'RUNNING', $1, $4::text, '', CASE WHEN $1 = 'RUNNING' THEN 'A' END,
               CASE WHEN $1 IN ('CANCELED', 'DEAD_LETTERED') THEN $1 END
        """,
        [(row.status.value, row.submitted, row.finished, str(number)) for number, row in enumerate(table)],
    )


async def _walk(
    database: Database, connection: Connection, kept: dict[JobStatus, timedelta], limit: int
) -> tuple[Counter[JobStatus], set[int]]:
    repo = ExpiredJobs(database)
    deleted: Counter[JobStatus] = Counter()
    after: PageKey | None = None
    while True:
        swept = await repo.delete_expired(kept, after=after, limit=limit)
        assert swept.looked_at <= limit
        deleted.update(swept.deleted)
        after = swept.reached
        if swept.looked_at < limit:
            break
    return deleted, {int(row["topic"]) for row in await connection.fetch("SELECT topic FROM pulse.jobs")}
