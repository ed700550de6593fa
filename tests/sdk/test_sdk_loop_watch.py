"""A worker warns once each time that a handler blocks its event loop, with the line."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from pulse.worker import held_jobs
from pulse.worker.held_jobs import ClaimedJob, Releases, Shared, Window
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
        assert f'File "{__file__}", line {line}, in render\n' in warning


class _Watched:
    """Releases of a worker that holds a job, with a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(held_jobs, "lease_clock", lambda: self.now)
        shared = Shared(cast(Any, None), "w1", Window(1))
        shared.held.jobs["j1"] = cast(
            ClaimedJob, SimpleNamespace(has_begun=True, outcome=None, stop_reason="lost")
        )
        self._releases = Releases(shared, lambda: None)

    def look(self, after_seconds: float) -> None:
        self.now += after_seconds
        self._releases.send(lambda _: pb.ReleaseResponse())


async def test_process_that_stood_still_is_not_a_block(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watched = _Watched(monkeypatch)
    watched.look(0.25)
    watched.look(60)
    assert _warnings(caplog) == []
    watched.look(0.25)
    assert len(_warnings(caplog)) == 1


async def test_idle_event_loop_is_not_a_block(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a busy machine it may run late."""
    watched = _Watched(monkeypatch)
    loop = asyncio.get_running_loop()
    loop_thread = threading.get_ident()
    monkeypatch.setattr(watched._releases, "_call_in_loop", lambda *_: None)

    def look() -> None:
        while not sys._current_frames()[loop_thread].f_code.co_filename.endswith("selectors.py"):
            time.sleep(0.01)
        for _ in range(8):
            watched.look(0.25)

    await loop.run_in_executor(None, look)
    assert _warnings(caplog) == []
