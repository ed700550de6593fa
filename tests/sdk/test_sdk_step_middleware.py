"""Middleware that runs a handler with steps again in the same attempt: what is stored is read back."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import pulse
from tests.sdk.conftest import Running
from tests.sdk.test_sdk_steps import ended
from tests.transport.pulse_server_under_test import ServerUnderTest

SOON = timedelta(milliseconds=10)


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:

        @client.middleware
        async def again(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
            try:
                await call_next()
            except ConnectionError:
                await call_next()

        yield client


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_repeated_call_reads_back_the_steps_of_the_first_one(
    p: pulse.Pulse, running: Running, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    def charge(order: int) -> str:
        ran.append("charge")
        return f"charge-{order}"

    def flaky(runs: int) -> int:
        ran.append("flaky")
        if runs == 1:
            raise ConnectionError
        return runs

    @p.job("async")
    async def in_loop(ctx: pulse.Context) -> list[object]:
        await ctx.sleep(SOON)
        runs.append(1)
        return [
            await ctx.step("charge", charge, 7),
            await ctx.wait_for("approved"),
            await ctx.step("flaky", flaky, len(runs)),
        ]

    @p.job("def")
    def in_thread(ctx: pulse.SyncContext) -> list[object]:
        ctx.sleep(SOON)
        runs.append(1)
        return [
            ctx.step("charge", charge, 7),
            ctx.wait_for("approved"),
            ctx.step("flaky", flaky, len(runs)),
        ]

    runs: list[int] = []
    job = await p.enqueue(kind)
    await p.signal(job.id, "approved", "Ann")
    with caplog.at_level(logging.WARNING, "pulse.worker"):
        async with running(p):
            info = await ended(p, job)
    assert (info.status, info.result) == ("COMPLETED", ["charge-7", "Ann", 2])
    assert (ran, info.attempts) == (["charge", "flaky", "flaky"], 1)
    assert caplog.text == ""


async def test_repeated_call_reads_back_the_steps_of_middleware_inside_of_it(
    p: pulse.Pulse, running: Running
) -> None:
    ran: list[str] = []
    failures = [ConnectionError()]

    @p.middleware
    async def inside(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        await call.context.step("inside", lambda: ran.append("inside"))
        await call_next()

    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        await ctx.step("work", lambda: ran.append("work"))
        if failures:
            raise failures.pop()

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, ran) == ("COMPLETED", ["inside", "work"])


async def test_call_after_a_suspension_that_middleware_caught_is_an_error(
    server: ServerUnderTest, running: Running
) -> None:
    async with pulse.Pulse(server.address) as p:

        @p.middleware
        async def careless(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
            try:
                await call_next()
            except BaseException:
                await call_next()

        @p.job("work", max_attempts=1)
        async def handle(ctx: pulse.Context) -> None:
            await ctx.sleep(timedelta(hours=1))

        async with running(p):
            info = await ended(p, await p.enqueue("work"))
    assert "comes after ctx.sleep(), which has ended this attempt" in (info.last_error or "")
