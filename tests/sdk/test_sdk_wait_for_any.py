"""Handlers that wait for one of several signals, at a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import pulse
from tests.rows import each_row
from tests.sdk.conftest import Running
from tests.sdk.test_sdk_sleeps import LATER, SOON, Decision, waiting
from tests.sdk.test_sdk_steps import ended
from tests.transport.pulse_server_under_test import ServerUnderTest


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, concurrency=4) as client:
        yield client


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_wait_for_any_returns_the_signal_that_came_in_every_attempt(
    p: pulse.Pulse, running: Running, kind: str
) -> None:
    seen: list[tuple[str, Decision]] = []

    @p.job("async")
    async def in_loop(ctx: pulse.Context) -> str:
        seen.append(await ctx.wait_for_any("approved", "rejected", returns=Decision, timeout=LATER))
        if len(seen) == 1:
            raise pulse.Retry(SOON)
        return str(await ctx.wait_for("approved"))

    @p.job("def")
    def in_thread(ctx: pulse.SyncContext) -> str:
        seen.append(ctx.wait_for_any("approved", "rejected", returns=Decision, timeout=LATER))
        if len(seen) == 1:
            raise pulse.Retry(SOON)
        return str(ctx.wait_for("approved"))

    async with running(p):
        job = await p.enqueue(kind)
        info = await waiting(p, job)
        assert (info.waits_for, info.status) == ("approved\nrejected", "RETRYING")
        await p.signal(job.id, "rejected", Decision(ok=False))
        await p.signal(job.id, "approved", "after all")
        info = await ended(p, job)
    assert seen == [("rejected", Decision(ok=False))] * 2
    assert (info.status, info.result) == ("COMPLETED", "after all")
    assert [step.name for step in await p.steps(job.id)] == ["approved or rejected", "approved"]


async def test_wait_for_any_raises_if_none_comes_in_time(p: pulse.Pulse, running: Running) -> None:
    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        await ctx.wait_for_any("approved", "rejected", timeout=SOON)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert "The signal 'approved' or 'rejected' did not come in time." in (info.last_error or "")


@each_row("names", [(), ("a\nb",), ("",), ("a", 7)])
async def test_names_that_no_signal_can_have_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(pulse.InvalidArgument):
        await pulse.Context().wait_for_any(*names)
