from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import pulse
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


@dataclass
class Email:
    to: str
    copies: int = 1


async def test_handler_gets_its_arguments_and_context(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    seen: list[Any] = []

    @p.job("work")
    async def handle(args: Email, ctx: pulse.Context) -> None:
        assert pulse.current() is ctx
        seen.append((args, ctx.job_id, ctx.attempt, ctx.max_attempts, ctx.topic, ctx.priority))
        seen.append((ctx.metadata, ctx.idempotency_key, ctx.cancelled, ctx.is_last_attempt))

    async with running(p):
        fields = {"attempt": 2, "priority": 5, "metadata": {"m": "n"}, "idempotency_key": "k"}
        fake.deliver("j1", payload=b'{"to":"a@b.c"}', **fields)
        await fake.until_async(lambda: "j1" in fake.results)
    assert seen == [(Email("a@b.c"), "j1", 2, 3, "work", 5), ({"m": "n"}, "k", False, False)]
    result = fake.results["j1"]
    assert (result.success, result.attempt, result.error) == (True, 2, "")


async def _boom() -> None:
    raise ValueError("bad \x00 thing " + "x" * 10_000)


async def _retry() -> None:
    raise pulse.Retry(after=timedelta(seconds=90), reason="the API is busy")


async def _discard() -> None:
    raise pulse.Discard("no such user")


async def _cancelled_inside() -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


async def _needs(to: str) -> None:
    raise AssertionError("must not run")


@pytest.mark.parametrize(
    ("handler", "error", "seconds", "discard"),
    [
        (_boom, "ValueError: bad  thing xxx", 0, False),
        (_retry, "the API is busy", 90, False),
        (_discard, "no such user", 0, True),
        (_cancelled_inside, "CancelledError", 0, False),
        (_needs, "The arguments cannot be decoded: Expected `str`, got `int` - at `$.to`", 0, True),
    ],
)
async def test_failure_is_reported_for_what_it_is(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    handler: Callable[..., Any],
    error: str,
    seconds: int,
    discard: bool,
) -> None:
    p.register("work", handler)
    async with running(p):
        fake.deliver("j1", payload=b'{"to":1}')
        await fake.until_async(lambda: "j1" in fake.results)
    result = fake.results["j1"]
    assert result.error.startswith(error)
    assert "\x00" not in result.error
    assert len(result.error.encode()) <= 8192
    assert (result.success, result.retry_after.seconds, result.discard) == (False, seconds, discard)


async def test_sync_handler_runs_in_a_thread_with_its_contextvars(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    seen: list[Any] = []

    @p.job("work")
    def handle(to: str, ctx: pulse.Context) -> None:
        seen.append((to, threading.current_thread() is threading.main_thread(), pulse.current() is ctx))

    async with running(p):
        fake.deliver("j1", payload=b'{"to":"x"}')
        await fake.until_async(lambda: "j1" in fake.results)
    assert seen == [("x", False, True)]
    assert fake.results["j1"].success


async def test_contextvars_of_one_job_do_not_reach_the_next(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")
    seen: list[str] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        seen.append(variable.get())
        variable.set("dirty")

    async with running(p):
        fake.deliver(*(f"j{number}" for number in range(10)))
        await fake.until_async(lambda: len(fake.results) == 10)
    assert seen == ["clean"] * 10


async def test_no_more_than_concurrency_run_at_once_in_order(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    order: list[str] = []
    now = most = 0

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        order.append(ctx.job_id)
        await asyncio.sleep(0.001)
        now -= 1

    ids = [f"j{number}" for number in range(20)]
    async with running(p):
        fake.deliver(*ids)
        await fake.until_async(lambda: len(fake.results) == 20)
    assert most == 2
    assert order == ids


async def test_handler_may_enqueue(fake: FakePulsed, p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def handle(number: int) -> None:
        await p.enqueue("next", number + 1)

    async with running(p):
        fake.deliver("j1", payload=b'{"number":1}')
        await fake.until_async(lambda: "j1" in fake.results)
    assert [job.payload for job in fake.stored.values()] == [b"2"]


async def test_fast_handlers_widen_the_window(fake: FakePulsed, p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def handle() -> None:
        pass

    async with running(p):
        for number in itertools.count():  # those that a busy machine has kept waiting are not fast
            fake.deliver(f"j{number}")
            await fake.until_async(lambda number=number: f"j{number}" in fake.results)
            if max(fake.capacities, default=0) > 2:
                break


async def test_reports_carry_how_long_handlers_take(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def handle() -> None:
        await asyncio.sleep(0.02)

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert max(fake.run_seconds) >= 0.019


async def test_nothing_to_run_is_an_error(p: pulse.Pulse) -> None:
    with pytest.raises(pulse.InvalidHandler, match="nothing to run"):
        await p.run()


async def test_topics_are_settled_while_the_worker_runs(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    p.register("work", _boom)
    async with running(p):
        await fake.until_async(lambda: fake.opened)
        with pytest.raises(pulse.InvalidHandler, match="register it before"):
            p.register("late", _boom)
        with pytest.raises(pulse.InvalidHandler, match="already running"):
            await p.run()
    assert list(fake.opened[0].topics) == ["work"]
