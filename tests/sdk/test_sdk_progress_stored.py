"""Progress through a real server: stored, shown, and there for the next attempt."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import pulse
from pulse import tuning
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.transport.pulse_server_under_test import ServerUnderTest


async def test_next_attempt_continues_where_the_last_one_was(
    server: ServerUnderTest, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "HOLD_LOOK_SECONDS", 0.01)
    p = pulse.Pulse(server.address)
    go = asyncio.Event()
    seen: list[Any] = []

    @p.job("copy")
    async def copy(ctx: pulse.Context) -> None:
        seen.append((ctx.attempt, ctx.cursor, ctx.last_progress and ctx.last_progress.text))
        if ctx.attempt == 1:
            ctx.progress(0.25, "10 of 40 files", cursor={"file": 10})
            await go.wait()
            ctx.progress(0.5, "20 of 40 files", cursor={"file": 20})
            raise pulse.Retry(after=timedelta(0))
        ctx.progress(0.75)
        await asyncio.Event().wait()

    async with p, running(p):
        handle = await copy.enqueue()

        async def progress() -> pulse.Progress | None:
            return (await p.get_job(handle.id)).progress

        await eventually(progress)
        stored = await progress()
        assert stored is not None
        assert (stored.fraction, stored.text, stored.cursor) == (0.25, "10 of 40 files", {"file": 10})
        assert stored.remaining is not None
        go.set()
        await eventually(lambda: len(seen) == 2)
        assert seen[1] == (2, {"file": 20}, "20 of 40 files")

        async def is_of_the_second_attempt() -> bool:
            return getattr(await progress(), "attempt", 0) == 2

        await eventually(is_of_the_second_attempt)
        stored = await progress()
        assert stored is not None
        assert (stored.fraction, stored.cursor) == (0.75, {"file": 20})
        (listed,) = await p.list_jobs()
        assert listed.progress is not None
        assert (listed.progress.fraction, listed.progress.cursor) == (0.75, None)
        await p.cancel(handle.id)
        assert await progress() == stored
