"""A disk of the database is full: callers get an error, no job is lost, and work resumes afterwards."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

import pulse
from faults.bad_days.scale import PATIENT, SEVERAL_LEASES_SECONDS
from faults.bad_days.small_disk import NoSmallDisk, SmallDiskPostgres
from pulse_server.database.schema import apply_migrations
from tests.eventually import eventually
from tests.server.http_caller import get
from tests.system.stage import Pulsed, Stage, Worker, all_completed, free_port, table_of
from tests.system.worker_program import Errand
from tests.transport.jobs_table import JobsTable

RUNNING = 40
# A call for which there is no room is repeated for so long.
_REFUSED_WITHIN = timedelta(seconds=5)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[SmallDiskPostgres]:
    try:
        database = SmallDiskPostgres(tmp_path / "cluster")
    except NoSmallDisk as error:
        pytest.skip(f"this machine forbids the namespaces in which a small disk could be mounted: {error}")
    with database:
        asyncio.run(apply_migrations(database.dsn))
        yield database


@pytest.fixture
def stage(database: SmallDiskPostgres, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(database.dsn, tmp_path)
    yield stage
    stage.close()


async def test_full_disks_are_reported_and_lose_no_job(stage: Stage, database: SmallDiskPostgres) -> None:
    """Running jobs go on, and their ends count once. Every acknowledged job is stored."""
    http = f"127.0.0.1:{free_port()}"
    server = await stage.pulsed(**PATIENT, PULSE_HTTP_ADDR=http)
    gate = stage.gate("full")
    worker = await stage.worker(server.address, "gated", concurrency=RUNNING)
    async with pulse.Pulse(server.address) as p:
        handles = await p.enqueue_many("gated", [Errand(gate=gate)] * RUNNING)
        await eventually(lambda: len(stage.executions()) == RUNNING, "all of them run")
        handles += await _fill_data_disk(stage, database, p, worker, server, http)
        await _leases_live(stage)
        await eventually(lambda: "database_has_space" in server.log, "the end is logged")
        assert "full" not in {finding.kind for finding in await p.findings()}
        assert await _gauge_of_alert(http) == 0
        stored, unanswered = await _fill_log_disk(stage, database, p)
        handles += stored
        await _leases_live(stage)
        stage.open(gate)
        await stage.worker(server.address, "work")
        handles.append(await p.enqueue("work", Errand("there is room again")))
    async with _table(stage) as table:
        await all_completed(table, handles)
        assert await table.count("attempts <> 1 OR history IS NOT NULL") == 0
        assert 0 <= await table.count() - len(handles) <= unanswered, "what was not answered may be there"
    assert {len(starts) for starts in stage.by_job(handles).values()} == {1}


async def _fill_data_disk(
    stage: Stage, database: SmallDiskPostgres, p: pulse.Pulse, worker: Worker, server: Pulsed, http: str
) -> list[pulse.JobHandle]:
    """The tables cannot grow: submits fail at once, and no heartbeat succeeds for several leases.

    The server logs it, shows it first, sets the gauge that the alert reads, and stays ready.
    """
    acknowledged: list[pulse.JobHandle] = []
    async with _table(stage) as table:
        # A long read transaction keeps dead rows, so that no space comes free in the existing pages.
        await table.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pulse.jobs")
        with database.full("base"):
            for size in (20_000, 2_000, 1):  # down to the last bit of space
                refusal = await _enqueue_until_refused(p, acknowledged, size, timeout=_REFUSED_WITHIN)
                assert isinstance(refusal, pulse.ResourceExhausted)
                assert refusal.message == "The database has no room left. Nothing was changed."
            await eventually(lambda: "has no room left" in worker.log, "a beat is refused")
            await eventually(lambda: "database_full" in server.log, "the server logs it")
            first, *_ = await p.findings()
            assert (first.kind, first.urgent) == ("full", True)
            assert "The database's disk is full" in first.sentence
            assert await _gauge_of_alert(http) == 1
            assert '"ready": false' not in server.log
            await asyncio.sleep(SEVERAL_LEASES_SECONDS)
    async with _table(stage) as table:
        assert await table.count("topic = 'work'") == len(acknowledged), "what was refused is not there"
    return acknowledged


async def _gauge_of_alert(http: str) -> float:
    (line,) = re.findall(r"^pulse_database_full (.*)$", (await get(http, "/metrics")).text, re.MULTILINE)
    return float(line)


async def _fill_log_disk(
    stage: Stage, database: SmallDiskPostgres, p: pulse.Pulse
) -> tuple[list[pulse.JobHandle], int]:
    """Postgres cannot go on without its log: it shuts down, and no call is answered until it is back.

    Returns the jobs that were acknowledged, and how many calls were not answered: on a busy machine some of
    them before the log is full.
    """
    acknowledged: list[pulse.JobHandle] = []
    unanswered = 0
    with database.full("pg_wal"):
        async with _table(stage) as table:
            with suppress(asyncpg.PostgresError, OSError):
                await table.connection.execute("SELECT pg_switch_wal()")  # the next segment is yet to be made
        while not unanswered or "PANIC" not in database.log:
            refusal = await _enqueue_until_refused(p, acknowledged, 50_000, timeout=timedelta(seconds=1))
            assert isinstance(refusal, pulse.Unavailable)
            unanswered += 1
    database.restart()
    return acknowledged, unanswered


async def _enqueue_until_refused(
    p: pulse.Pulse, acknowledged: list[pulse.JobHandle], size: int, timeout: timedelta
) -> pulse.PulseError:
    """Enqueue jobs of about this size until the database refuses one. Returns the error."""
    while True:
        try:
            acknowledged.append(await p.enqueue("work", Errand(os.urandom(size // 2).hex()), timeout=timeout))
        except pulse.PulseError as error:
            return error


async def _leases_live(stage: Stage) -> None:
    async with _table(stage) as table:

        async def are_live() -> bool:
            return await table.count("status = 'RUNNING' AND lease_until > now()") == RUNNING

        await eventually(are_live, "the lease of each running job is extended again")


@asynccontextmanager
async def _table(stage: Stage) -> AsyncIterator[JobsTable]:
    table = await table_of(stage.dsn)
    try:
        yield table
    finally:
        table.connection.terminate()
