"""Steps of the handlers of a SyncPulse, whose worker has an event loop apart from that of its verbs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

import pytest

import pulse
from tests.transport.pulse_server_under_test import ServerUnderTest

WITHIN = timedelta(seconds=20)


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.SyncPulse]:
    client = pulse.SyncPulse(server.address, concurrency=4)
    yield client
    await asyncio.to_thread(client.close)


@contextmanager
def working(p: pulse.SyncPulse) -> Iterator[None]:
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(p.run, handle_signals=False)
        try:
            yield
        finally:
            p.close()
            run.result(WITHIN.total_seconds())


async def test_def_handlers_store_steps_beside_each_other(p: pulse.SyncPulse) -> None:
    met = threading.Barrier(4)

    @p.job("work")
    def handle(ctx: pulse.Context) -> list[int]:
        met.wait(20)
        return [ctx.step("part", lambda number=number: number, index=number) for number in range(5)]  # type: ignore[misc]

    def drive() -> list[object]:
        with working(p):
            handles = [p.enqueue("work") for _ in range(4)]
            return [handle.result(WITHIN) for handle in handles]

    assert await asyncio.to_thread(drive) == [[0, 1, 2, 3, 4]] * 4


async def test_async_handler_stores_steps_while_the_client_enqueues(p: pulse.SyncPulse) -> None:
    @p.job("work")
    async def handle(ctx: pulse.Context) -> int:
        first = await ctx.step("first", int)
        await asyncio.to_thread(p.enqueue, "other")
        return first + await ctx.step("second", lambda: 2)

    @p.job("other")
    async def other() -> None: ...

    def drive() -> object:
        with working(p):
            return p.enqueue("work").result(WITHIN)

    assert await asyncio.to_thread(drive) == 2


async def test_def_handler_stores_steps_in_an_event_loop_of_its_own(p: pulse.SyncPulse) -> None:
    async def work(ctx: pulse.Context) -> int:
        return sum(await asyncio.gather(ctx.step("one", lambda: 1), ctx.step("two", lambda: 2)))

    @p.job("work")
    def handle(ctx: pulse.Context) -> int:
        return asyncio.run(work(ctx))

    def drive() -> object:
        with working(p):
            return p.enqueue("work").result(WITHIN)

    assert await asyncio.to_thread(drive) == 3


async def test_handlers_hold_a_topic_while_the_client_enqueues(p: pulse.SyncPulse) -> None:
    @p.job("work", running=10)
    async def handle(ctx: pulse.Context) -> str:
        await ctx.hold(timedelta(0))
        return await asyncio.to_thread(lambda: p.enqueue("other").id)

    @p.job("other", running=10)
    def other(ctx: pulse.SyncContext) -> str:
        ctx.hold(timedelta(0))
        return ctx.job_id

    def drive() -> tuple[object, object]:
        with working(p):
            other_id = p.enqueue("work").result(WITHIN)
            return other_id, p.handle(str(other_id), "other").result(WITHIN)

    other_id, held = await asyncio.to_thread(drive)
    assert other_id == held
