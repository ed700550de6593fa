"""Handlers that never wait run in turns, and leave the event loop to other tasks in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import pytest

import pulse
from pulse import tuning
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


@pytest.fixture
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no runner end because this machine is busy."""
    monkeypatch.setattr(tuning, "TURN_SECONDS", 60.0)


async def ticks(count: list[int]) -> None:
    """Count the turns of the event loop."""
    while True:
        count[0] += 1
        await asyncio.sleep(0)


async def test_many_short_jobs_let_other_tasks_run_in_between(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    count = [0]
    counted: list[int] = []

    @p.job("work")
    async def handle() -> None:
        counted.append(count[0])

    ticking = asyncio.create_task(ticks(count))
    async with running(p):
        fake.deliver(*(f"j{number}" for number in range(1_000)))
        await fake.until_async(lambda: len(fake.results) == 1_000)
    ticking.cancel()
    assert max(Counter(counted).values()) <= tuning.TURN_JOBS


async def test_handlers_that_take_long_let_other_tasks_run_after_each(
    fake: FakePulsed, p: pulse.Pulse, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "TURN_SECONDS", 1e-9)  # so that every handler takes long
    count = [0]
    counted: list[int] = []

    @p.job("work")
    async def handle() -> None:
        counted.append(count[0])

    ticking = asyncio.create_task(ticks(count))
    async with running(p):
        fake.deliver(*(f"j{number}" for number in range(20)))
        await fake.until_async(lambda: len(fake.results) == 20)
    ticking.cancel()
    assert len(set(counted)) == 20


async def test_short_jobs_after_some_that_waited_let_other_tasks_run_in_between(
    fake: FakePulsed, running: Running, long_turns: None
) -> None:
    count = [0]
    counted: list[int] = []

    async with pulse.Pulse(fake.address, concurrency=20) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            if ctx.job_id.startswith("waits"):
                await asyncio.sleep(0)
            else:
                counted.append(count[0])

        ticking = asyncio.create_task(ticks(count))
        async with running(p):
            fake.deliver(*(f"waits {number}" for number in range(20)))
            await fake.until_async(lambda: len(fake.results) == 20)
            fake.deliver(*(f"j{number}" for number in range(1_000)))
            await fake.until_async(lambda: len(fake.results) == 1_020)
        ticking.cancel()
    assert max(Counter(counted).values()) < tuning.TURN_JOBS + 20


async def test_handlers_that_wait_start_together(fake: FakePulsed, running: Running) -> None:
    count = [0]
    counted: list[int] = []

    async with pulse.Pulse(fake.address, concurrency=20) as p:

        @p.job("work")
        async def handle() -> None:
            counted.append(count[0])
            await asyncio.sleep(0)

        ticking = asyncio.create_task(ticks(count))
        async with running(p):
            for burst in "a", "b":
                fake.deliver(*(f"{burst}{number}" for number in range(20)))
                await fake.until_async(partial(fake.results.__contains__, f"{burst}19"))
        ticking.cancel()
    assert len(set(counted[20:])) == 1
