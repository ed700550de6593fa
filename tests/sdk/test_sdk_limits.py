"""A time limit that ends the handler, whatever it does."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

import pulse
from pulse import tuning
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed

SHORT = timedelta(milliseconds=50)


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "LIMIT_GRACE_SECONDS", 0.1)
    # No job is released because this machine is busy.
    monkeypatch.setattr(tuning, "HOLD_SECONDS", 60.0)


@pytest.fixture
async def p(fake: FakePulsed) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(
        fake.address, concurrency=4, lost_slots_exit=3, drain_timeout=timedelta(seconds=5)
    ) as client:
        yield client


async def test_async_handler_is_canceled_at_its_limit(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    cleaned_up = []

    @p.job("work", timeout=SHORT)
    async def handle(ctx: pulse.Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.append(ctx.cancelled)

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    result = fake.results["j1"]
    assert (result.success, result.timed_out, result.discard) == (False, True, False)
    assert result.error.startswith("TimedOut: The attempt took longer than its time limit of 0:00:00.05")
    assert "asyncio.Event().wait()" in result.error
    assert cleaned_up == [True]


async def test_limit_of_the_assignment_wins_over_that_of_the_handler(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work", timeout=timedelta(hours=1))
    async def handle() -> None:
        await asyncio.Event().wait()

    async with running(p):
        fake.deliver("j1", timeout=SHORT)
        await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].timed_out


async def test_handler_that_ends_in_time_is_not_affected(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work", timeout=timedelta(hours=1))
    async def handle() -> None:
        await asyncio.sleep(0)

    @p.job("sync", timeout=timedelta(hours=1))
    def handle_in_thread() -> None: ...

    async with running(p):
        fake.deliver(*(f"a{number}" for number in range(20)))
        fake.deliver(*(f"s{number}" for number in range(20)), topic="sync")
        await fake.until_async(lambda: len(fake.results) == 40)
    assert all(result.success for result in fake.results.values())


async def test_thread_that_computes_gets_the_error_raised_in_it(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    raised: list[type[BaseException]] = []

    @p.job("work", timeout=SHORT)
    def handle() -> None:
        try:
            while True:
                pass
        except BaseException as error:
            raised.append(type(error))
            raise

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert raised == [pulse.TimedOut]
    assert fake.results["j1"].timed_out
    assert "while True:" in fake.results["j1"].error or "pass" in fake.results["j1"].error


async def test_except_exception_in_a_loop_does_not_keep_the_handler(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work", timeout=SHORT)
    def handle() -> None:
        while True:
            try:
                time.sleep(0.001)
            except Exception:
                continue

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].timed_out
    assert "may still run" not in fake.results["j1"].error


async def test_handler_that_raises_discard_at_its_limit_is_heard(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work", timeout=SHORT)
    async def handle() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise pulse.Discard("too slow") from None

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].discard


def never_returns_from_c(ends: list[int]) -> None:
    """Wait in C code that does not come back, until the test ends it."""
    reader, writer = os.pipe()
    ends.append(writer)
    ctypes.CDLL(None).read(reader, ctypes.create_string_buffer(1), 1)
    os.close(reader)


async def test_thread_that_is_stuck_in_c_is_given_up_and_its_slot_is_lost_until_it_ends(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[int] = []

    @p.job("work", timeout=SHORT)
    def handle(ctx: pulse.Context) -> None:
        if ctx.job_id == "stuck":
            never_returns_from_c(ends)

    async with running(p):
        fake.deliver("stuck")
        await fake.until_async(lambda: "stuck" in fake.results)
        result = fake.results["stuck"]
        assert result.timed_out
        assert "may still run" in result.error
        assert "never_returns_from_c" in result.error
        await fake.until_async(lambda: 3 in fake.capacities)
        fake.deliver("next")
        await fake.until_async(lambda: "next" in fake.results)
        assert fake.results["next"].success
        os.close(ends[0])
        await fake.until_async(lambda: fake.capacities and fake.capacities[-1] >= 4)
    assert fake.result_count == 2
    assert "its slot is lost (1 of 4)" in caplog.text
    assert "ctypes.CDLL(None).read" in caplog.text


async def test_async_handler_that_swallows_its_cancellation_is_given_up(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()

    @p.job("work", timeout=SHORT)
    async def handle() -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    async with running(p):
        fake.deliver("stuck")
        await fake.until_async(lambda: "stuck" in fake.results)
        assert fake.results["stuck"].timed_out
        assert "await go.wait()" in fake.results["stuck"].error
        await fake.until_async(lambda: 3 in fake.capacities)
        go.set()
        await fake.until_async(lambda: fake.capacities[-1] >= 4)
    assert fake.result_count == 1


async def test_too_many_lost_slots_end_the_worker(fake: FakePulsed, p: pulse.Pulse) -> None:
    go = threading.Event()

    @p.job("work", timeout=SHORT)
    def handle() -> None:
        while not go.is_set():
            with_all_swallowed(go.wait)

    def with_all_swallowed(wait: Callable[[], Any]) -> None:
        try:
            wait()
        except BaseException:
            return

    fake.deliver("j1", "j2", "j3")
    try:
        with pytest.raises(pulse.SlotsLost, match="3 of 4 slots are lost"):
            await p.run(handle_signals=False)
    finally:
        go.set()
    assert all(fake.results[job_id].timed_out for job_id in ("j1", "j2", "j3"))


async def test_error_meant_for_one_job_never_reaches_the_next_one_of_its_thread(
    fake: FakePulsed, p: pulse.Pulse, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers that end just at their limit: some are interrupted after they returned."""
    monkeypatch.setattr(tuning, "LIMIT_GRACE_SECONDS", 20.0)

    @p.job("short", timeout=timedelta(milliseconds=2))
    def short() -> None:
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass

    @p.job("long")
    def long() -> None:
        sum(range(1000))

    async with running(p):
        for number in range(150):
            fake.deliver(f"short{number}", topic="short")
            fake.deliver(f"long{number}", topic="long")
        await fake.until_async(lambda: len(fake.results) == 300)
    assert all(fake.results[f"long{number}"].success for number in range(150))
