"""`ctx.complete` in a worker whose pulsed and database are fakes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from hashlib import sha256

import pulse
from pulse.handlers.context import Context
from tests.sdk.conftest import Running
from tests.sdk.effects import FakeConnection
from tests.sdk.fake_pulsed import FakePulsed


async def test_heartbeat_stops_no_handler_that_has_called_complete(running: Running) -> None:
    fake = FakePulsed(lease_seconds=1, heartbeat_seconds=0.1).start()
    async with pulse.Pulse(fake.address, drain_timeout=timedelta(seconds=5)) as client:
        go = asyncio.Event()

        @client.job("work")
        async def work(ctx: Context) -> None:
            await ctx.complete(FakeConnection())
            await go.wait()

        async with running(client):
            fake.disowned = {"j1"}
            fake.deliver("j1")
            await fake.until_async(lambda: fake.beats.count(("j1", 1)) >= 3)
            go.set()
            await fake.until_async(lambda: "j1" in fake.results)
    result = fake.results["j1"]
    assert (result.success, result.in_transaction) == (False, True)
    assert result.error == "The handler called ctx.complete, but its transaction was not committed."
    fake.stop()


async def test_error_after_complete_is_reported_as_one_of_a_transaction(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    connection = FakeConnection()

    @p.job("work")
    async def work(ctx: Context) -> None:
        await ctx.complete(connection, result=b"raw")
        raise ValueError("no")

    async with running(p):
        fake.deliver("j1", attempt=2, run=5)
        await fake.until_async(lambda: "j1" in fake.results)
    result = fake.results["j1"]
    assert (result.success, result.in_transaction, result.error[:10]) == (False, True, "ValueError")
    ((_, job_id, worker_id, run, token, encoded),) = connection.statements
    assert (job_id, worker_id, run, encoded) == ("j1", "ann:w1", 5, b"raw")
    assert token == sha256(b"of ann:w1j1:5").digest()[:16]


async def test_async_connection_in_a_def_handler_is_refused(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    def work(ctx: pulse.SyncContext) -> None:
        ctx.complete(FakeConnection())

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert "async connection in a `def` handler" in fake.results["j1"].error


async def test_complete_does_nothing_in_a_unit_test() -> None:
    await pulse.Context().complete(object(), result=7)


def test_complete_does_nothing_in_a_unit_test_of_a_def_handler() -> None:
    assert pulse.SyncContext().complete(object()) is None
