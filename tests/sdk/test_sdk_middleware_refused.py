"""Middleware that cannot work is refused where it is registered, and is blamed for its own errors alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import pulse
from tests.rows import each_row
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


async def _takes_one(call: pulse.JobCall) -> None: ...


async def _yields(call: pulse.JobCall, call_next: pulse.CallNext) -> AsyncIterator[None]:
    yield


class _Timing:
    async def __call__(self, call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        await call_next()


@each_row(
    "middleware, sentence",
    [
        (_takes_one, "_takes_one cannot be called with"),
        (_yields, "_yields has a `yield`"),
        (_Timing, "Give an object of it"),
    ],
)
def test_middleware_that_would_fail_every_job_is_refused(middleware: Any, sentence: str) -> None:
    with pytest.raises(pulse.InvalidMiddleware, match=sentence):
        pulse.Pulse().middleware(middleware)


def test_object_with_a_call_method_is_middleware() -> None:
    pulse.Pulse().middleware(_Timing())


async def _passes_on(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    await call_next()


async def _forgets(call: pulse.JobCall, call_next: pulse.CallNext) -> None: ...


async def _asks_for_the_loop(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    asyncio.get_running_loop()
    await call_next()


async def test_error_of_a_sync_handler_is_not_taken_for_one_of_its_middleware(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    def handle() -> None:
        asyncio.get_running_loop()

    p.middleware(_passes_on)
    p.middleware(_passes_on)
    p.register("work", handle)
    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].error.startswith("RuntimeError: no running event loop")


async def test_middleware_that_needs_an_event_loop_in_a_thread_is_named(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    p.middleware(_passes_on)
    p.middleware(_asks_for_the_loop)
    p.register("work", lambda: None)
    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].error.startswith("InvalidMiddleware: The middleware _asks_for_the_loop awaits")


async def test_error_about_middleware_has_no_cause_of_pulse_itself(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    """Dead letters are grouped by their innermost cause."""
    p.middleware(_forgets)
    p.register("work", lambda: None)
    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert "StopIteration" not in fake.results["j1"].error
