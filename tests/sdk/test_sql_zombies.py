"""Handlers that lost their claim and go on, or run in processes: `ctx.complete` lets one of them write."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import pulse
from pulse.handlers.context import Context
from tests.eventually import eventually
from tests.fakes.time_machines import check_running_jobs
from tests.sdk.conftest import Running
from tests.sdk.effects import Database, commit, effects
from tests.transport.pulse_server_under_test import ServerUnderTest


async def test_handler_that_ignores_its_cancellation_cannot_write(
    client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    started = asyncio.Event()
    raised: list[BaseException] = []

    @client.job("charge")
    async def charge(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            try:
                await commit(ctx, database_dsn)
            except pulse.ClaimLost as error:
                raised.append(error)
            raise

    async with running(client):
        handle = await charge.enqueue()
        await started.wait()
        await client.cancel(handle.id)
        await eventually(lambda: raised)
    assert type(raised[0]) is pulse.ClaimLost
    assert (await client.get_job(handle.id)).status is pulse.JobStatus.CANCELED
    assert await effects(database) == 0


async def test_run_whose_lease_was_lost_cannot_write_beside_the_next_one(
    server: ServerUnderTest, client: pulse.Pulse, running: Running, database: Database, database_dsn: str
) -> None:
    started, is_reaped = asyncio.Event(), asyncio.Event()
    ends: list[tuple[int, type[Exception] | None]] = []

    async def charge_anyway(ctx: Context) -> None:
        started.set()
        await is_reaped.wait()
        try:
            await commit(ctx, database_dsn)
        except pulse.ClaimLost as error:
            ends.append((ctx.run, type(error)))
        else:
            ends.append((ctx.run, None))

    @client.job("charge")
    async def charge(ctx: Context) -> None:
        await asyncio.shield(charge_anyway(ctx))

    async with running(client):
        handle = await charge.enqueue()
        await started.wait()
        await eventually(lambda: has_lost_its_first_run(server, handle.id))
        await eventually(lambda: job_has_run(server, handle.id, 2))
        is_reaped.set()
        await eventually(lambda: len(ends) == 2)
    assert sorted(ends) == [(1, pulse.ClaimLost), (2, None)]
    assert (await client.get_job(handle.id)).status is pulse.JobStatus.COMPLETED
    assert await effects(database) == 1


async def has_lost_its_first_run(server: ServerUnderTest, job_id: str) -> bool:
    """Expire the lease of the first run until it is reaped: a heartbeat on its way extends it again."""
    sql = (
        "UPDATE pulse.jobs SET lease_until = now() - interval '1 h' "
        "WHERE id = $1 AND run = 1 AND locked_by IS NOT NULL"
    )
    if await server.table.connection.execute(sql, job_id) == "UPDATE 0":
        return True
    await check_running_jobs(server.table.connection)
    server.app.work.lease_keeping.watchdog._steady_since = -1e9
    server.app.work.lease_keeping.watchdog.loop.nudge()
    return False


async def job_has_run(server: ServerUnderTest, job_id: str, run: int) -> bool:
    sql = "SELECT run = $2 AND locked_by IS NOT NULL FROM pulse.jobs WHERE id = $1"
    return bool(await server.table.connection.fetchval(sql, job_id, run))


@pytest.mark.parametrize("topic", ["charge", "charge-async"])
async def test_handler_in_a_process_completes_its_job(
    server: ServerUnderTest, client: pulse.Pulse, database: Database, database_dsn: str, topic: str
) -> None:
    script = Path(__file__).with_name("transaction_app.py")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "ADDRESS": server.address,
        "DSN": database_dsn,
    }
    process = await asyncio.create_subprocess_exec(sys.executable, script, env=environment)
    try:
        committed = await client.enqueue(topic, {"commits": True})
        assert await committed.result(timedelta(seconds=60)) == {"paid": 7}
        rolled_back = await client.enqueue(topic, {"commits": False}, max_attempts=1)
        with pytest.raises(pulse.JobFailed, match="was not committed"):
            await rolled_back.result(timedelta(seconds=60))
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)
    assert await effects(database) == 1
