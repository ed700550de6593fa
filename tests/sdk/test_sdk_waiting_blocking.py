"""Waiting without asyncio: handles of a SyncPulse, and handlers that are plain functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

import pulse
from tests.sdk.conftest import Running
from tests.transport.pulse_server_under_test import ServerUnderTest

LONG = timedelta(seconds=40)
SHORT = timedelta(milliseconds=50)


@contextmanager
def working(address: str) -> Iterator[pulse.SyncPulse]:
    """A client with handlers, whose worker runs in a thread."""
    p = pulse.SyncPulse(address)

    @p.job("double")
    def double(number: int) -> int:
        return number * 2

    @p.job("fail")
    async def fail() -> str:
        raise pulse.Discard("refused")

    worker = threading.Thread(target=lambda: p.run(handle_signals=False))
    worker.start()
    try:
        yield p
    finally:
        p.close()
        worker.join(40)
        assert not worker.is_alive()


def wait_in_every_way(address: str) -> None:
    with working(address) as p:
        handle = p.enqueue("double", {"number": 4})
        assert isinstance(handle, pulse.SyncJobHandle)
        assert (handle.result(LONG), handle.wait(LONG).result) == (8, 8)
        assert p.handle(handle.id, "double").result(LONG) == 8
        many = p.enqueue_many("double", [{"number": number} for number in range(20)])
        assert p.gather(*many, timeout=LONG) == [number * 2 for number in range(20)]
        assert sorted(one.result() for one in p.as_completed(many, timeout=LONG)) == [*range(0, 40, 2)]
        failed = p.enqueue("fail")
        with pytest.raises(pulse.JobFailed, match="refused"):
            failed.result(LONG)
        (error,) = p.gather(failed, timeout=LONG, return_exceptions=True)
        assert isinstance(error, pulse.JobFailed)
        waiting = p.enqueue("unserved")
        with pytest.raises(pulse.ResultTimeout):
            waiting.result(SHORT)
        with pytest.raises(pulse.ResultTimeout):
            p.gather(waiting, timeout=SHORT)
        p.cancel(waiting.id, "not needed")
        with pytest.raises(pulse.JobCanceled, match="not needed"):
            waiting.result(LONG)
        p.delete(waiting.id)
        with pytest.raises(pulse.ResultGone):
            waiting.wait(LONG)
        with pytest.raises(pulse.InvalidArgument, match="handles of a SyncPulse"):
            p.gather(pulse.Pulse(address).handle(handle.id))  # type: ignore[arg-type]


async def test_blocking_client_waits_for_jobs(server: ServerUnderTest) -> None:
    await asyncio.to_thread(wait_in_every_way, server.address)


async def test_handles_of_a_blocking_client_are_refused_by_gather(server: ServerUnderTest) -> None:
    handle = pulse.SyncPulse(server.address).handle("id")
    with pytest.raises(pulse.InvalidArgument, match=r"SyncPulse: use its own p\.gather"):
        await pulse.gather(handle)


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


async def test_plain_handler_waits_in_its_thread_and_is_warned_once(
    p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @p.job("inner")
    async def inner(number: int) -> int:
        return number + 1

    @p.job("outer")
    def outer(number: int) -> Any:
        handle: Any = inner.enqueue(number)
        return handle.result(LONG) * 10

    @p.job("outer-async")
    async def outer_async(number: int) -> int:
        return (await pulse.gather(await inner.enqueue(number), timeout=LONG))[0]

    async with running(p):
        assert await (await outer.enqueue(1)).result(LONG) == 20
        assert await (await outer.enqueue(2)).result(LONG) == 30
        assert await (await outer_async.enqueue(3)).result(LONG) == 4
    warnings = [record.message for record in caplog.records if "waits for a job" in record.message]
    assert [warning.partition(",")[0] for warning in warnings] == [
        "The handler of outer waits for a job of inner",
        "The handler of outer-async waits for a job of inner",
    ]
    assert "pulse.Snooze" in warnings[0]


async def test_wait_for_a_topic_of_other_workers_is_no_reason_to_warn(
    p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @p.job("outer")
    async def outer() -> int:
        handle = await p.enqueue("elsewhere")
        return int(await handle.result(LONG))

    other = pulse.Pulse(p.address)

    @other.job("elsewhere")
    async def elsewhere() -> int:
        return 7

    async with running(p), other, running(other):
        assert await (await outer.enqueue()).result(LONG) == 7
    assert not [record for record in caplog.records if "waits for a job" in record.message]


async def test_handler_that_returns_a_handle_has_it_as_its_result(p: pulse.Pulse, running: Running) -> None:
    @p.job("next")
    async def follow_up() -> None: ...

    @p.job("async")
    async def as_value() -> Any:
        return await follow_up.enqueue()

    @p.job("plain")
    def as_coroutine() -> Any:
        return follow_up.enqueue()

    async with running(p):
        for job in (as_value, as_coroutine):
            result = await (await job.enqueue()).result(LONG)
            fields = ["duplicate", "id", "replaced", "submitted_at", "topic"]
            assert (result["topic"], sorted(result)) == ("next", fields)
