"""Middleware surrounds handlers, where they run, and cannot lose an outcome."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from datetime import timedelta
from typing import Any

import pytest

import pulse
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="")


async def test_middleware_runs_in_order_and_sees_context_arguments_and_outcome(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    seen: list[Any] = []

    @p.middleware
    async def outer(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        seen.append(("outer", call.context.job_id, dict(call.arguments)))
        try:
            await call_next()
        except ValueError as error:
            seen.append(("outer", str(error)))
            raise

    @p.middleware
    async def inner(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        call.arguments["number"] += 1
        seen.append(("inner", await call_next()))

    @p.job("work")
    async def handle(number: int) -> str:
        if number == 8:
            raise ValueError("eight")
        return f"handled {number}"

    async with running(p):
        fake.deliver("j1", payload=b'{"number":1}')
        await fake.until_async(lambda: "j1" in fake.results)
        fake.deliver("j2", payload=b'{"number":7}')
        await fake.until_async(lambda: "j2" in fake.results)
    assert seen == [
        ("outer", "j1", {"number": 1}),
        ("inner", "handled 2"),
        ("outer", "j2", {"number": 7}),
        ("outer", "eight"),
    ]
    assert fake.results["j1"].success
    assert fake.results["j2"].error.startswith("ValueError: eight")


async def test_middleware_runs_in_the_thread_of_a_sync_handler(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    threads: list[int] = []

    @p.middleware
    async def wide(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        threads.append(threading.get_ident())
        await call_next()
        threads.append(threading.get_ident())

    @p.middleware
    def plain(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        threads.append(threading.get_ident())
        call_next()

    @p.job("work")
    def handle() -> None:
        threads.append(threading.get_ident())

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].success
    assert len(threads) == 4
    assert len({*threads, threading.get_ident()}) == 2


async def _raises(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    await call_next()
    raise pulse.Retry(after=timedelta(seconds=7), reason="not yet")


async def _swallows(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    try:
        await call_next()
    except ValueError:
        return


async def _repeats(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    try:
        await call_next()
    except ValueError:
        await call_next()


async def _skips(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    call.skip()


async def _forgets(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    pass


async def _leaves_early(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    task = asyncio.ensure_future(call_next())
    await asyncio.sleep(0)
    call.context.logger.debug("%s", task)


def _forgets_too(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    pass


async def _awaits(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
    await call_next()
    await asyncio.sleep(0.01)


async def _waits(fails: bool = False) -> None:
    await asyncio.sleep(0.05)
    if fails:
        raise ValueError("bad")


async def _fails() -> None:
    raise ValueError("bad")


def _is_sync() -> None:
    pass


FORGOT = "returned without running the handler"


@pytest.mark.parametrize(
    ("middleware", "handler", "runs", "error"),
    [
        (_raises, _waits, 1, "not yet"),
        (_swallows, _fails, 1, ""),
        (_repeats, _fails, 2, "ValueError: bad"),
        (_skips, _fails, 0, ""),
        (_forgets, _waits, 0, f"InvalidMiddleware: The middleware _forgets {FORGOT}"),
        (_forgets, _is_sync, 0, f"InvalidMiddleware: The middleware _forgets {FORGOT}"),
        (_forgets_too, _is_sync, 0, f"InvalidMiddleware: The middleware _forgets_too {FORGOT}"),
        (_leaves_early, _waits, 1, "InvalidMiddleware: The middleware _leaves_early returned before"),
        (_awaits, _is_sync, 1, "InvalidMiddleware: The middleware _awaits awaits more than call_next()"),
    ],
)
async def test_outcome_is_what_middleware_makes_of_it_and_is_never_lost(
    fake: FakePulsed, p: pulse.Pulse, running: Running, middleware: Any, handler: Any, runs: int, error: str
) -> None:
    ran: list[Any] = []

    @p.middleware
    async def first(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        await call_next()

    p.middleware(middleware)

    if handler is _is_sync:

        @p.middleware
        def count(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
            ran.append(call)
            call_next()
    else:

        @p.middleware
        async def count_async(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
            ran.append(call)
            await call_next()

    p.register("work", handler)
    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    result = fake.results["j1"]
    assert len(ran) == runs
    assert result.success is (not error)
    assert result.error.startswith(error)


async def test_plain_middleware_around_an_async_handler_is_refused_when_the_worker_starts(
    p: pulse.Pulse,
) -> None:
    p.middleware(_forgets_too)
    p.register("work", _waits)
    with pytest.raises(pulse.InvalidMiddleware, match="_forgets_too is a plain function"):
        await p.run(handle_signals=False)
    with pytest.raises(pulse.InvalidMiddleware, match="has to be a function"):
        p.middleware(3)  # type: ignore[type-var]


async def test_contextvars_of_middleware_are_those_of_its_job_alone(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    """Short handlers share a task; those that wait and those in threads have their own."""
    seen: dict[str, tuple[str, str]] = {}

    @p.middleware
    async def remember(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        before = tenant.get()
        tenant.set(call.context.job_id)
        await call_next()
        seen[call.context.job_id] = before, tenant.get()

    @p.job("work")
    async def short() -> None:
        assert tenant.get() == pulse.current().job_id

    @p.job("waiting")
    async def waiting() -> None:
        await asyncio.sleep(0)
        assert tenant.get() == pulse.current().job_id

    @p.job("threaded")
    def threaded() -> None:
        assert tenant.get() == pulse.current().job_id

    jobs = [f"{topic}-{number}" for topic in ("work", "waiting", "threaded") for number in range(20)]
    async with running(p):
        for job in jobs:
            fake.deliver(job, topic=job.partition("-")[0])
        await fake.until_async(lambda: len(fake.results) == len(jobs))
    assert all(fake.results[job].success for job in jobs)
    assert seen == {job: ("", job) for job in jobs}
