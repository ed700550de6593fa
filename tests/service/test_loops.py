"""The loop of every background service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.base.loops import Loop
from tests.eventually import PATIENCE_SECONDS
from tests.rows import each_row

NEVER = timedelta(days=1)
AT_ONCE = timedelta(microseconds=1)


class Action:
    """Counts its runs and returns or raises what the test prepared for each of them."""

    def __init__(self, *script: Exception | timedelta | None) -> None:
        self.runs = 0
        self._script = list(script)

    async def __call__(self) -> timedelta | None:
        self.runs += 1
        step = self._script.pop(0) if self._script else AT_ONCE
        if isinstance(step, Exception):
            raise step
        return step


async def run_until(action: Callable[[], Awaitable[timedelta | None]], ticks: int) -> Loop:
    loop = Loop("test", action, AT_ONCE)
    async with asyncio.timeout(PATIENCE_SECONDS):
        running = asyncio.create_task(loop.run())
        await loop.wait_for_ticks(ticks)
        loop.stop()
        await running
    return loop


async def test_first_round_waits_for_its_turn() -> None:
    action = Action()
    loop = Loop("test", action, AT_ONCE)
    running = asyncio.create_task(loop.run(after=NEVER))
    await asyncio.sleep(0)
    assert action.runs == 0

    async with asyncio.timeout(PATIENCE_SECONDS):
        loop.nudge()
        await loop.wait_for_ticks(1)
        loop.stop()
        await running


async def test_loop_that_is_stopped_before_its_turn_does_nothing() -> None:
    action = Action()
    loop = Loop("test", action, AT_ONCE)
    running = asyncio.create_task(loop.run(after=NEVER))
    await asyncio.sleep(0)
    loop.stop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await running
    assert action.runs == 0


@each_row("blip", [Unavailable("away"), RuntimeError("a bug")])
async def test_blip_does_not_end_the_loop(blip: Exception) -> None:
    action = Action(None, blip, None)

    await run_until(action, 4)

    assert action.runs >= 4


async def test_outage_is_logged_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pulse_server.base.loops")
    away = Unavailable("The database did not answer.")

    await run_until(Action(None, away, away, away, None, None), 7)

    assert [record.getMessage() for record in caplog.records] == ["loop_failing", "loop_recovered"]


async def test_bug_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    await run_until(Action(RuntimeError("a bug")), 2)

    (record,) = caplog.records
    assert record.getMessage() == "loop_failed"
    assert record.exc_info is not None


async def test_stop_lets_the_action_under_way_finish() -> None:
    started, may_finish = asyncio.Event(), asyncio.Event()
    finished = False

    async def action() -> None:
        nonlocal finished
        started.set()
        await may_finish.wait()
        finished = True

    loop = Loop("test", action, NEVER)
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await started.wait()
        loop.stop()
        await asyncio.sleep(0)
        assert not running.done()
        may_finish.set()
        await running
    assert finished


async def test_stop_ends_the_sleep_at_once() -> None:
    action = Action(NEVER)
    loop = Loop("test", action, NEVER)
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await loop.wait_for_ticks(1)
        loop.stop()
        await running
    assert action.runs == 1


async def test_action_may_shorten_the_sleep() -> None:
    action = Action(AT_ONCE, AT_ONCE, NEVER)
    loop = Loop("test", action, NEVER)
    running = asyncio.create_task(loop.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await loop.wait_for_ticks(3)
        loop.stop()
        await running
    assert action.runs == 3


async def test_loop_that_was_stopped_before_it_ran_does_nothing() -> None:
    action = Action()
    loop = Loop("test", action, NEVER)
    loop.stop()

    await loop.run()

    assert action.runs == 0
