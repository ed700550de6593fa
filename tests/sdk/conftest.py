from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta

import asyncpg
import pytest

import pulse
from tests.ports import reserved_address
from tests.sdk.effects import Database
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed
from tests.sdk.libraries import LIBRARIES, Transaction
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
def kept_address() -> Iterator[str]:
    """An address that no other process gets while the test has no server there."""
    with reserved_address() as address:
        yield address


@pytest.fixture
async def server(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServerUnderTest]:
    """A real server, in this event loop, whose scheduler is quick."""
    monkeypatch.setattr("pulse_server.schedules.SCHEDULE_INTERVAL", timedelta(milliseconds=50))
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


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    """A connection of the application, with a table for the effects of handlers."""
    connection = await asyncpg.connect(database_dsn)
    await connection.execute("CREATE TABLE effects (number serial)")
    yield connection
    await connection.execute("DROP TABLE effects")
    await connection.close()


@pytest.fixture
async def client(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, drain_timeout=timedelta(seconds=5)) as client:
        yield client


@pytest.fixture(params=LIBRARIES)
async def transaction(
    request: pytest.FixtureRequest, database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Transaction]:
    """A transaction of each library that pulse.sql knows."""
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # the tests are async for other libraries
    async with LIBRARIES[request.param](database_dsn) as opened:
        yield opened
