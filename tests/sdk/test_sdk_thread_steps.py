"""The verbs for steps in `def` handlers: they block, in their threads."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import pulse
from tests.sdk.conftest import Running
from tests.sdk.test_sdk_steps import Row, ended
from tests.transport.pulse_server_under_test import ServerUnderTest

SOON = timedelta(milliseconds=10)


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, concurrency=4) as client:
        yield client


async def test_def_handler_has_the_same_verbs_without_await(p: pulse.Pulse, running: Running) -> None:
    ran: list[tuple[str, str]] = []
    seen: list[Any] = []

    def fetch(number: int) -> Row:
        ran.append(("fetch", threading.current_thread().name))
        return Row(number)

    async def look_up() -> int:
        ran.append(("look_up", threading.current_thread().name))
        return 3

    @p.job("work", max_attempts=1)
    def handle(ctx: pulse.Context) -> None:
        row = ctx.step("fetch", fetch, 7)
        number = ctx.step("look up", look_up)
        ctx.sleep(SOON)
        signal = ctx.wait_for("go")
        seen.append((row, number, signal))

    async with running(p):
        job = await p.enqueue("work")
        await p.signal(job.id, "go", "now")
        info = await ended(p, job)
    assert (info.status, info.suspensions, info.steps) == ("COMPLETED", 1, 4)
    assert seen == [(Row(7), 3, "now")]
    assert [name for name, _ in ran] == ["fetch", "look_up"]
    assert ran[0][1].startswith("pulse-handler"), "a step runs in the thread of its handler"


async def test_errors_of_verbs_are_those_of_async_handlers(p: pulse.Pulse, running: Running) -> None:
    late: list[int] = []

    @p.job("late")
    def handle_late(ctx: pulse.Context) -> None:
        try:
            ctx.wait_for("never", timeout=SOON)
        except pulse.SignalTimeout:
            late.append(ctx.run)

    @p.job("twice", max_attempts=1)
    def handle_twice(ctx: pulse.Context) -> None:
        ctx.step("a", int)
        ctx.step("a", int)

    @p.job("large")
    def handle_large(ctx: pulse.Context) -> None:
        ctx.step("a", lambda: "x" * 2_000_000)

    async with running(p):
        assert (await ended(p, await p.enqueue("late"))).status == "COMPLETED"
        twice = await ended(p, await p.enqueue("twice"))
        large = await ended(p, await p.enqueue("large"))
    assert late == [2]
    assert "is used twice" in (twice.last_error or "")
    assert (large.status, large.attempts) == ("DEAD_LETTERED", 1)


async def test_signal_can_be_sent_from_a_def_handler(p: pulse.Pulse, running: Running) -> None:
    @p.job("waits")
    async def waits(ctx: pulse.Context) -> Any:
        return await ctx.wait_for("go")

    @p.job("sends")
    def sends(job_id: str) -> None:
        p.signal(job_id, "go", 7)  # type: ignore[unused-coroutine]

    async with running(p):
        job = await p.enqueue("waits")
        await ended(p, await p.enqueue("sends", {"job_id": job.id}))
        info = await ended(p, job)
    assert info.result == 7


def test_unit_test_of_a_def_handler_runs_its_steps_at_once() -> None:
    async def look_up() -> int:
        return 3

    ctx = pulse.SyncContext(signals={"go": 1})
    assert ctx.step("double", lambda number: number * 2, 4) == 8
    assert ctx.step("look up", look_up) == 3
    ctx.sleep(timedelta(days=1))
    ctx.hold(timedelta(days=1))
    assert ctx.wait_for("go") == 1
