"""Reads see one table, whether jobs wait, ended in pulse.jobs or are completed, on several days. ADR-0057"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from pulse_server.base.ids import PageKey
from pulse_server.database.connections import Database
from pulse_server.jobs.new_jobs import Submitted
from pulse_server.jobs.rules import LIVE, TERMINAL, JobFilter, JobStatus
from pulse_server.jobs.store import PostgresJobRepo
from tests.fakes.store import Store, a_job
from tests.fakes.time_machines import PostgresTimeMachine
from tests.postgres.sessions import Connection
from tests.rows import each_row

JOBS = 120
SCHEDULE = "0190f3a2-7b1c-7000-8009-000000000001"
BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(days=2)
# Jobs come in sevens that were submitted at the same moment. In turn: two that wait, one of each way to end
# in pulse.jobs, and three that are completed elsewhere, at times that fall on different days.
LIVE_JOBS = f"""
INSERT INTO pulse.jobs (id, submitted_at, next_run_at, started_at, finished_at, attempts, max_attempts,
    queued, status, ended_as, topic, payload, last_error, metadata, schedule_id, lane)
SELECT ('0190f3a2-7b1c-7000-8001-' || lpad(to_hex(n), 12, '0'))::uuid,
    $1::timestamptz + n / 7 * interval '1 hour', now(), now(), CASE WHEN n % 8 > 1 THEN now() END,
    1, 5, n % 8 < 2, state, CASE WHEN n % 8 IN (2, 3) THEN state END,
    'topic-' || n % 3, '', CASE WHEN n % 5 = 0 THEN 'Boom ' || n END,
    CASE WHEN n % 4 = 0 THEN '{{"tenant": "a"}}'::jsonb END, CASE WHEN n % 2 = 0 THEN '{SCHEDULE}'::uuid END,
    CASE WHEN n % 7 < 5 THEN 'lane-' || n % 7 % 2 END
FROM generate_series(1, {JOBS}) AS n
CROSS JOIN LATERAL (
    SELECT (ARRAY['PENDING', 'RETRYING', 'DEAD_LETTERED', 'CANCELED', 'COMPLETED'])[n % 8 + 1]
) AS ended (state)
WHERE n % 8 < 5
"""
COMPLETED_JOBS = f"""
INSERT INTO pulse.completed_jobs (id, submitted_at, next_run_at, started_at, finished_at, priority, attempts,
    max_attempts, delivered, topic, payload, finished_by, last_error, metadata, schedule_id, kept, lane)
SELECT ('0190f3a2-7b1c-7000-8001-' || lpad(to_hex(n), 12, '0'))::uuid,
    $1::timestamptz + n / 7 * interval '1 hour', now(), now(), now() + (n % 5 - 3) * interval '1 day',
    0, 1, 5, true, 'topic-' || n % 3, '', 'A', CASE WHEN n % 5 = 0 THEN 'Boom ' || n END,
    CASE WHEN n % 4 = 0 THEN '{{"tenant": "a"}}'::jsonb END, CASE WHEN n % 2 = 0 THEN '{SCHEDULE}'::uuid END,
    n % 7 = 0, CASE WHEN n % 7 < 5 THEN 'lane-' || n % 7 % 2 END
FROM generate_series(1, {JOBS}) AS n WHERE n % 8 >= 5
"""
FILTERS = {
    "everything": JobFilter(),
    "a topic": JobFilter(frozenset({"topic-1"})),
    "what is not finished": JobFilter(statuses=LIVE),
    "what is finished": JobFilter(statuses=TERMINAL),
    "what is completed": JobFilter(statuses=frozenset({JobStatus.COMPLETED})),
    "completed or waiting": JobFilter(statuses=frozenset({JobStatus.COMPLETED, JobStatus.PENDING})),
    "dead letters": JobFilter(statuses=frozenset({JobStatus.DEAD_LETTERED})),
    "a schedule": JobFilter(schedule_id=SCHEDULE),
    "a schedule's completed": JobFilter(schedule_id=SCHEDULE, statuses=frozenset({JobStatus.COMPLETED})),
    "a lane": JobFilter(frozenset({"topic-1"}), lane="lane-1"),
    "what is not finished in a lane": JobFilter(frozenset({"topic-1"}), LIVE, lane="lane-1"),
    "what is finished in a lane": JobFilter(frozenset({"topic-1"}), TERMINAL, lane="lane-1"),
    "dead letters of a lane": JobFilter(
        frozenset({"topic-1"}), frozenset({JobStatus.DEAD_LETTERED}), lane="lane-1"
    ),
    "a span of time": JobFilter(
        submitted_since=BASE + timedelta(hours=3), submitted_before=BASE + timedelta(hours=11)
    ),
    "an error": JobFilter(error_contains="bOOm 1"),
    "metadata": JobFilter(frozenset({"topic-1"}), metadata={"tenant": "a"}),
}
of_every_filter = each_row("name", FILTERS)


@pytest.fixture
async def full(store: Store, connection: Connection) -> Store:
    await connection.execute(LIVE_JOBS, BASE)
    await connection.execute(COMPLETED_JOBS, BASE)
    return store


async def expected(connection: Connection, wanted: JobFilter) -> list[str]:
    """The ids of all that match, newest first, by a plain reading of the view."""
    rows = await connection.fetch("SELECT * FROM pulse.all_jobs ORDER BY submitted_at DESC, id DESC")
    assert len(rows) == JOBS
    return [str(row["id"]) for row in rows if _matches(row, wanted)]


def _matches(row: Any, wanted: JobFilter) -> bool:
    return (
        (wanted.topics is None or row["topic"] in wanted.topics)
        and (wanted.statuses is None or JobStatus(row["status"]) in wanted.statuses)
        and (wanted.schedule_id is None or str(row["schedule_id"]) == wanted.schedule_id)
        and (wanted.lane is None or row["lane"] == wanted.lane)
        and (wanted.submitted_since is None or row["submitted_at"] >= wanted.submitted_since)
        and (wanted.submitted_before is None or row["submitted_at"] < wanted.submitted_before)
        and (wanted.error_contains or "").lower() in (row["last_error"] or "").lower()
        and (wanted.metadata is None or '"tenant"' in (row["metadata"] or ""))
    )


@of_every_filter
@each_row("page", [1, 7, 1000])
async def test_pages_have_every_job_once_and_in_order(
    full: Store, connection: Connection, name: str, page: int
) -> None:
    wanted, found = FILTERS[name], []
    after: PageKey | None = None
    while jobs := await full.repo.list_jobs(wanted, limit=page, after=after):
        found += [job.id for job in jobs]
        after = PageKey(jobs[-1].submitted_at, jobs[-1].id)

    assert found == await expected(connection, wanted)
    assert found


@of_every_filter
async def test_offsets_keys_and_counts_agree_with_the_pages(
    full: Store, connection: Connection, name: str
) -> None:
    wanted = FILTERS[name]
    everything = await expected(connection, wanted)

    assert [job.id for job in await full.repo.list_jobs(wanted, limit=5, offset=3)] == everything[3:8]
    assert [key.id for key in await full.repo.matching_jobs(wanted, limit=1000)] == everything
    assert await full.repo.count_matching_jobs(wanted) == len(everything)


async def test_prefix_finds_jobs_in_the_order_of_their_ids_wherever_they_are(
    full: Store, connection: Connection
) -> None:
    rows = await connection.fetch("SELECT id FROM pulse.all_jobs ORDER BY id LIMIT 20")

    assert await full.repo.find_jobs("0190f3a27b1c", 20) == [str(row["id"]) for row in rows]


async def test_delete_takes_finished_jobs_wherever_they_are(full: Store, connection: Connection) -> None:
    everything = await expected(connection, JobFilter())
    finished = await expected(connection, JobFilter(statuses=TERMINAL))
    dead = await expected(connection, JobFilter(statuses=frozenset({JobStatus.DEAD_LETTERED})))

    assert set(await full.repo.delete_jobs(everything, {JobStatus.DEAD_LETTERED})) == set(dead)
    assert set(await full.repo.delete_jobs(everything)) == set(finished) - set(dead)
    assert set(await full.repo.job_statuses(everything)) == set(everything) - set(finished)


async def test_what_is_completed_in_a_list_reads_as_it_ran(store: Store) -> None:
    job = a_job(idempotency_key="k", metadata={"tenant": "a"}, priority=7)
    await store.submit(job)
    (claim,) = await store.claim("A")
    await store.repo.complete_jobs([claim])

    (listed,) = await store.repo.list_jobs(JobFilter(), limit=10)
    found = await store.repo.get_job(job.id)

    assert found is not None
    assert (listed.status, listed.ready, listed.locked_by) == (JobStatus.COMPLETED, False, None)
    assert (listed.idempotency_key, listed.metadata, listed.priority) == ("k", {"tenant": "a"}, 7)
    assert (listed.attempts, listed.finished_by, listed.error_group) == (1, "A", "")
    assert found.payload == job.payload
    assert listed.finished_at == found.finished_at is not None


async def test_job_that_finishes_on_a_day_without_a_partition_is_seen_as_any_other(database_dsn: str) -> None:
    """No server could make partitions ahead."""
    connection: Connection = await asyncpg.connect(database_dsn, timeout=60)
    database = Database(database_dsn)
    store, job = Store(PostgresJobRepo(database), PostgresTimeMachine(connection)), a_job(idempotency_key="k")
    for row in await connection.fetch(
        "SELECT relid::regclass::text AS name FROM pg_partition_tree('pulse.completed_jobs') "
        "WHERE relid::regclass::text LIKE '%completed\\_jobs\\_2%'"
    ):
        await connection.execute(f"DROP TABLE {row['name']}")
    await store.submit(job)
    (claim,) = await store.claim("A")
    assert set(await store.repo.complete_jobs([claim])) == {claim}

    assert await connection.fetchval("SELECT count(*) FROM pulse.completed_jobs_default") == 1
    assert await store.repo.insert_jobs([job, job._replace(id=a_job().id)]) == [Submitted(job.id, True)] * 2
    assert await store.repo.job_statuses([job.id]) == {job.id: JobStatus.COMPLETED}
    assert [listed.id for listed in await store.repo.list_jobs(JobFilter(), limit=10)] == [job.id]
    assert await store.repo.delete_jobs([job.id]) == {job.id: JobStatus.COMPLETED}
    await database.close()
    await connection.close()
