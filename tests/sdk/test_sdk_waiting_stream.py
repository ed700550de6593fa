"""The stream that all waits of a client share: what ends it, and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import grpc
import grpc.aio
import pytest

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test

LONG = timedelta(seconds=40)
SHORT = timedelta(milliseconds=50)


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


async def test_all_waits_of_a_client_share_one_stream(
    p: pulse.Pulse, server: ServerUnderTest, running: Running
) -> None:
    @p.job("work")
    async def work(number: int) -> int:
        return number

    handles = await work.enqueue_many([{"number": number} for number in range(200)])
    waits = [asyncio.ensure_future(handle.result(LONG)) for handle in handles for _ in range(2)]
    await asyncio.sleep(0)
    async with running(p):
        results = await asyncio.gather(*waits)
    assert results == [number for number in range(200) for _ in range(2)]
    assert len(server.app.work.awaited_jobs._waiters) == 1


async def test_canceled_wait_leaves_those_of_others(p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def work() -> int:
        return 7

    handle = await work.enqueue()
    first, second = asyncio.ensure_future(handle.result()), asyncio.ensure_future(handle.result(LONG))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    async with running(p):
        assert await second == 7


async def test_wait_goes_on_at_another_server(database_dsn: str, kept_address: str, running: Running) -> None:
    """The server stops in the middle of the wait, and one at the same address takes its place."""
    async with server_under_test(database_dsn, grpc_address=kept_address) as first:
        p = pulse.Pulse(first.address)
        handle = await p.enqueue("work")
        wait = asyncio.ensure_future(handle.result(LONG))
        await eventually(lambda: first.app.work.awaited_jobs._by_job)
    assert not wait.done()
    async with server_under_test(database_dsn, grpc_address=kept_address):
        worker = pulse.Pulse(p.address)

        @worker.job("work")
        async def work() -> int:
            return 7

        async with worker, running(worker):
            assert await wait == 7
    await p.close()


async def test_closing_the_client_ends_its_waits(p: pulse.Pulse) -> None:
    handle = await p.enqueue("work")
    wait = asyncio.ensure_future(handle.result())
    await eventually(lambda: p._caller.session().awaiting._patience.is_endless)
    await p.close()
    with pytest.raises(pulse.ClientClosed):
        await wait


async def test_server_that_cannot_wait_is_named_in_a_sentence(fake: FakePulsed) -> None:
    async with pulse.Pulse(fake.address) as p:
        handle = await p.enqueue("work")
        with pytest.raises(pulse.Unavailable, match="is of a version that cannot wait for jobs"):
            await handle.result(LONG)


async def test_answer_that_a_message_hid_is_asked_for_again(
    fake: FakePulsed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC reports an error of its own if the server ends a stream while a message is written to it."""
    async with pulse.Pulse(fake.address) as p:
        handle = await p.enqueue("work")
        connection = p._caller.session().connection
        reads: list[object] = []

        async def hide_the_first(call: Any) -> Any:
            reads.append(call)
            if len(reads) == 1:
                nothing = grpc.aio.Metadata()
                raise grpc.aio.AioRpcError(
                    grpc.StatusCode.INTERNAL, nothing, nothing, details="Internal error from Core"
                )
            return await type(connection).read(connection, call)

        monkeypatch.setattr(connection, "read", hide_the_first)
        with pytest.raises(pulse.Unavailable, match="is of a version that cannot wait for jobs"):
            await handle.result(LONG)


async def test_server_that_is_away_raises_unavailable_within_the_timeout_of_the_client() -> None:
    async with pulse.Pulse("127.0.0.1:9", timeout=timedelta(milliseconds=300)) as p:
        with pytest.raises(pulse.Unavailable):
            await p.handle("00000000-0000-7000-8000-000000000001").result()


async def test_stream_is_closed_once_nothing_is_waited_for(
    p: pulse.Pulse, server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.tuning.AWAIT_IDLE_SECONDS", 0.05)
    handle = await p.enqueue("work")
    for _ in range(2):  # and opened again
        with pytest.raises(pulse.ResultTimeout):
            await handle.result(SHORT)
        await eventually(lambda: not server.app.work.awaited_jobs._waiters)


async def test_wait_that_begins_while_the_idle_stream_ends_is_answered(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def work() -> int:
        return 7

    async with running(p):
        handle = await work.enqueue()
        assert await handle.result(LONG) == 7
        p._caller.session().awaiting._leave()
        assert await handle.result(LONG) == 7


async def test_answer_that_cannot_be_read_fails_the_wait(
    p: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(view: object) -> None:
        raise ValueError("a status of tomorrow")

    monkeypatch.setattr("pulse.jobs.handles.job_info", fail)
    handle = await p.enqueue("work")
    await p.cancel(handle.id)
    with pytest.raises(pulse.InternalError, match="a status of tomorrow"):
        await handle.result(LONG)


async def test_waits_leave_nothing_behind(p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def work() -> int:
        return 7

    async with running(p):
        assert await pulse.gather(*[await work.enqueue() for _ in range(3)], timeout=LONG) == [7] * 3
    awaiting = p._caller.session().awaiting
    assert (awaiting._waits, awaiting._added, awaiting.answered) == ({}, {}, {})
