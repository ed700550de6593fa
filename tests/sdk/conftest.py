from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import pytest

import pulse
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed
from tests.sdk.traces import Traces, traces_recorded
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

Running = Callable[[pulse.Pulse], AbstractAsyncContextManager["asyncio.Task[None]"]]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PULSE_")]:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def fake() -> Iterator[FakePulsed]:
    pulsed = FakePulsed().start()
    yield pulsed
    pulsed.stop()


@pytest.fixture
async def server(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServerUnderTest]:
    """A real server, in this event loop, whose scheduler is quick."""
    monkeypatch.setattr("pulse_server.app.SCHEDULE_INTERVAL", timedelta(milliseconds=50))
    async with server_under_test(database_dsn) as running:
        yield running


@pytest.fixture
async def p(fake: FakePulsed) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(fake.address, concurrency=2, drain_timeout=timedelta(seconds=5)) as client:
        yield client


@pytest.fixture
def running() -> Running:
    """Run a worker for the length of a block; leaving it cancels and drains."""

    @contextlib.asynccontextmanager
    async def run(client: pulse.Pulse) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(client.run(handle_signals=False))
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=PATIENCE_SECONDS)
            assert task.done()

    return run


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traces]:
    with traces_recorded(monkeypatch) as traces:
        yield traces
