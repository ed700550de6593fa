"""Everything at once: five servers start on an empty database, and all processes stop."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

import asyncpg

from faults.bad_days.producer_program import acknowledged_by_all, start_producer
from pulse_server.database.schema import known_migrations
from tests.eventually import eventually
from tests.system.journal import started_after_completion
from tests.system.stage import Process, Stage, all_finished, free_port
from tests.transport.jobs_table import JobsTable


async def test_five_servers_that_start_on_an_empty_database_migrate_it_once(
    empty_database_dsn: str, tmp_path: Path
) -> None:
    """Two of them go on to serve; the others only migrate, as before a deployment."""
    stage = Stage(empty_database_dsn, tmp_path)
    try:
        servers = [stage.start_pulsed(None, "--migrate") for _ in range(2)]
        migrating = [stage.start_pulsed(None, "migrate") for _ in range(3)]
        await asyncio.gather(*map(stage.serving, servers))
        assert [await process.ended() for process in migrating] == [0, 0, 0]
        connection = await asyncpg.connect(empty_database_dsn)
        applied = await connection.fetch("SELECT name FROM pulse.schema_migrations ORDER BY name")
        await connection.close()
        assert [row["name"] for row in applied] == [migration.name for migration in known_migrations()]
    finally:
        stage.close()


async def test_all_processes_that_stop_at_once_resume_where_they_were(stage: Stage, table: JobsTable) -> None:
    """Servers, workers and an application stop in the middle of their work. Every acknowledged job completes
    in the end. A job that no worker held has lost nothing, not even an attempt."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    # A call that arrives while a server closes can keep it draining, in about one stop of two hundred.
    # The drain has to end well before the first lease: until then a server reaps as usual.
    patience = {"PULSE_DRAIN_TIMEOUT": "1s", "PULSE_LEASE_TTL": "5s", "PULSE_HEARTBEAT_INTERVAL": "1s"}
    everything: list[Process] = [stage.start_pulsed(address, **patience) for address in addresses]
    for address in addresses:
        everything.append(stage.start_worker(address, "work", "sync-work", concurrency=2))
    everything.append(start_producer(stage, addresses[0]))
    pids = {process.pid for process in everything[2:4]}
    await eventually(lambda: {start.pid for start in stage.executions()} == pids, "both workers are at work")
    await eventually(
        lambda: len(acknowledged_by_all(stage)) > len(stage.executions()) + 20, "and have a backlog"
    )
    for process in everything:
        process.signal(signal.SIGTERM)
    codes = [await process.ended() for process in everything]
    assert codes == [0, 0, 0, 0, -signal.SIGTERM]
    stored = await table.connection.fetch("SELECT id, status, attempts FROM pulse.all_jobs")
    waiting = {str(row["id"]): row["attempts"] for row in stored if row["status"] in ("PENDING", "RETRYING")}
    assert set(waiting.values()) == {0}

    await stage.pulsed(addresses[0])
    await stage.worker(addresses[0], "work", "sync-work")
    await all_finished(table)
    rows = {str(row["id"]): row for row in await table.connection.fetch("SELECT * FROM pulse.all_jobs")}
    assert set(acknowledged_by_all(stage)) <= rows.keys()
    assert {row["status"] for row in rows.values()} == {"COMPLETED"}
    assert {rows[job_id]["attempts"] for job_id in waiting} == {1}
    # One more for jobs that a worker held and could not release or report without a server.
    assert {row["attempts"] for row in rows.values()} <= {1, 2}
    # And one start more than attempts, if the first one had just begun: no server knew of it.
    starts = Counter(start.job_id for start in stage.executions())
    assert all(1 <= starts[job_id] <= row["attempts"] + 1 for job_id, row in rows.items())
    assert not await started_after_completion(table, stage.executions())
