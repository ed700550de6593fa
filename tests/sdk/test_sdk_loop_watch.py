"""A worker warns once each time that a handler blocks its event loop, with the handler and the line."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
import time
from typing import Any

import pytest

import pulse
from pulse.handlers.handler import Handler
from pulse.worker import loop_watch
from pulse.worker.loop_watch import LoopWatch
from tests.eventually import PATIENCE_SECONDS
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if "event loop has been blocked" in record.getMessage()
    ]


def _block_until(caplog: pytest.LogCaptureFixture, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(_warnings(caplog)) < count and time.monotonic() < deadline:
        time.sleep(0.05)


async def test_handler_that_blocks_the_event_loop_is_named_with_its_line_once_each_time(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    @p.middleware
    async def around(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        await call_next()

    @p.job("work")
    async def render(count: int) -> None:
        await asyncio.sleep(0)
        _block_until(caplog, count)
        time.sleep(0.5)  # noqa: ASYNC251 - the next look must not warn again

    line = render.function.__code__.co_firstlineno + 3
    async with running(p):
        for count in (1, 2):
            job = f"j{count}"
            fake.deliver(job, payload=b'{"count":%d}' % count)
            await fake.until_async(lambda job=job: job in fake.results)
    assert len(_warnings(caplog)) == 2
    for warning in _warnings(caplog):
        assert f"by the handler for 'work', line {line} of \"{__file__}\", in " in warning
        assert "inside line" in warning


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(loop_watch, "time", clock)
    return clock


async def test_process_that_stood_still_is_not_a_block(
    clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    watch = LoopWatch([])
    watch.start()
    clock.now += 60
    watch.look()
    assert _warnings(caplog) == []
    clock.now += 0.25
    watch.look()
    assert len(_warnings(caplog)) == 1
    watch.stop()


async def test_idle_event_loop_is_not_a_block(clock: _Clock, caplog: pytest.LogCaptureFixture) -> None:
    """On a busy machine it may run late."""
    watch = LoopWatch([])
    watch.start()
    loop_thread = threading.get_ident()

    def look() -> None:
        while not sys._current_frames()[loop_thread].f_code.co_filename.endswith("selectors.py"):
            time.sleep(0.01)
        for _ in range(8):
            clock.now += 0.25
            watch.look()

    await asyncio.to_thread(look)
    watch.stop()
    assert _warnings(caplog) == []


async def test_code_of_any_kind_of_handler_is_known() -> None:
    class Callable_:  # noqa: N801
        async def __call__(self) -> None: ...

    async def plain(x: int = 1) -> None: ...

    handlers: list[Any] = [plain, functools.partial(plain, x=2), Callable_()]
    for function in handlers:
        (code,) = LoopWatch([Handler("t", function, {})])._topics
        assert code in (plain.__code__, Callable_.__call__.__code__)
