"""An upgrade beside servers that work: it gets through, and none of their statements fails for it."""

from __future__ import annotations

import asyncio
from collections import Counter

import asyncpg

import pulse
from pulse_server.database.schema import Migration, apply_migrations, known_migrations, named_relations
from tests.eventually import eventually
from tests.postgres.busy_sessions import sessions_at_work
from tests.server.pulsed_process import Pulsed, pulsed

# Changes of the hot table, and of several tables at once. Servers go on meanwhile.
LATER = [
    Migration(
        9001,
        "9001_index",
        "CREATE INDEX jobs_later ON pulse.jobs (topic, submitted_at) WHERE queued; "
        "DROP INDEX pulse.jobs_later; ALTER TABLE pulse.jobs ADD COLUMN later integer;",
    ),
    Migration(
        9002,
        "9002_several",
        "ALTER TABLE pulse.topic_minutes ADD COLUMN later integer; "
        "ALTER TABLE pulse.dispatch_control ADD COLUMN later integer; "
        "ALTER TABLE pulse.barred_topics ADD COLUMN later integer; "
        "ALTER TABLE pulse.schedules ADD COLUMN later integer; "
        "ALTER TABLE pulse.servers ADD COLUMN later integer; "
        "CREATE INDEX jobs_later ON pulse.jobs (topic, submitted_at) WHERE queued; "
        "DROP INDEX pulse.jobs_later;",
    ),
]

LOCK_MET = [('"lock_met"', '"pulsed migrate"'), ('"loop_failing"', "Another session has locked the table.")]


async def test_schema_is_upgraded_under_full_load_without_a_failed_statement(database_dsn: str) -> None:
    async with sessions_at_work(database_dsn) as sessions:
        applied = await apply_migrations(database_dsn, [*known_migrations(), *LATER])

    assert applied == [migration.name for migration in LATER]
    assert sessions.failures == {}


async def test_schema_is_upgraded_beside_a_busy_pulsed_and_its_worker(database_dsn: str) -> None:
    runs: Counter[str] = Counter()

    async def produce(client: pulse.Pulse, is_over: asyncio.Event) -> list[str]:
        ids: list[str] = []
        while not is_over.is_set():
            ids += [job.id for job in await client.enqueue_many("mail", [{}] * 20)]
        return ids

    async with pulsed(database_dsn) as server, pulse.Pulse(server.address, concurrency=20) as p:

        @p.job("mail")
        async def mail(context: pulse.Context) -> None:
            runs[context.job_id] += 1

        is_over = asyncio.Event()
        working = asyncio.create_task(p.run(handle_signals=False))
        producing = [asyncio.create_task(produce(p, is_over)) for _ in range(4)]
        await eventually(lambda: len(runs) > 500, "the queue is busy")
        applied = await apply_migrations(database_dsn, [*known_migrations(), *LATER])
        is_over.set()
        ids = [job_id for produced in await asyncio.gather(*producing) for job_id in produced]
        await eventually(lambda: len(runs) >= len(ids), "every job ran")
        working.cancel()
        await asyncio.wait([working])
        server.signal()
        assert await server.ended() == 0

    assert applied == [migration.name for migration in LATER]
    assert runs == Counter(ids)
    assert _troubles(server) == []


async def test_deadlock_is_tried_again(empty_database_dsn: str) -> None:
    """The file asks for a table that it names in no statement of its own, as a trigger may."""
    first = Migration(1, "0001_two", "CREATE TABLE pulse.one (id int); CREATE TABLE pulse.two (id int);")
    hidden = "DO $$ BEGIN PERFORM pg_sleep(0.2); EXECUTE 'LOCK TABLE pulse' || '.two'; END $$;"
    second = Migration(2, "0002_hidden", f"ALTER TABLE pulse.one ADD COLUMN more int; {hidden}")
    await apply_migrations(empty_database_dsn, [first])
    connection = await asyncpg.connect(empty_database_dsn, timeout=60)
    await connection.execute("SET deadlock_timeout = '1h'")  # the migration finds out
    await connection.execute("BEGIN; LOCK TABLE pulse.two")
    migrating = asyncio.create_task(apply_migrations(empty_database_dsn, [first, second]))

    has_one = "SELECT count(*) FROM pg_locks WHERE relation = 'pulse.one'::regclass AND granted"
    observer = await asyncpg.connect(empty_database_dsn, timeout=60)
    await eventually(lambda: observer.fetchval(has_one))
    await connection.execute("LOCK TABLE pulse.one; COMMIT")

    assert await migrating == ["0002_hidden"]
    await connection.close(timeout=10)
    await observer.close(timeout=10)


def test_relations_are_read_from_statements_and_not_from_comments() -> None:
    sql = "-- as pulse.schedules has it\nDROP INDEX pulse.jobs_claim; ALTER TABLE pulse.jobs ADD x int;"

    assert named_relations(sql) == ["jobs", "jobs_claim"]


def _troubles(server: Pulsed) -> list[str]:
    """What it logged. That a statement met the migration's lock is none: how long it waits depends on the
    machine. Past 100 ms lease checks leave the table, and the next tick reads it. ADR-0042"""
    logged = [line for line in server.lines if '"warning"' in line.lower() or '"error"' in line.lower()]
    return [line for line in logged if not any(all(part in line for part in met) for met in LOCK_MET)]
