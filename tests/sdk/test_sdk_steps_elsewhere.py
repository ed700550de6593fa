"""Steps of a worker that stops, and steps at a server that does not know them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pulse
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.sdk.test_sdk_steps import ended
from tests.transport.pulse_server_under_test import ServerUnderTest


async def test_worker_that_stops_leaves_the_steps_to_the_next_one(server: ServerUnderTest) -> None:
    ran: list[int] = []
    begun, go = asyncio.Event(), asyncio.Event()

    def application() -> pulse.Pulse:
        p = pulse.Pulse(server.address, drain_timeout=timedelta(milliseconds=1))

        @p.job("work", max_attempts=1)
        async def handle(ctx: pulse.Context) -> None:
            await ctx.step("once", lambda: ran.append(ctx.attempt))
            begun.set()
            await go.wait()

        return p

    async with application() as first:
        working = asyncio.create_task(first.run(handle_signals=False))
        job = await first.enqueue("work")
        await begun.wait()
        working.cancel()
        await asyncio.wait({working})
    go.set()
    async with application() as second:
        working = asyncio.create_task(second.run(handle_signals=False))
        info = await ended(second, job)
        working.cancel()
        await asyncio.wait({working})
    assert (info.status, ran, info.attempts) == ("COMPLETED", [1], 1)


async def test_server_that_does_not_know_steps_is_named(fake: FakePulsed, running: Running) -> None:
    fake.step_bytes = 0
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            await ctx.step("fetch", int)

        async with running(p):
            fake.deliver("j1")
            await fake.until_async(lambda: "j1" in fake.results)
    assert "does not know steps" in fake.results["j1"].error
