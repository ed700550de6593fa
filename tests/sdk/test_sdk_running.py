"""Handlers that do not wait share a task. A handler cannot see that."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from typing import Any

import pytest

import pulse
from pulse import tuning
from pulse.v1 import pulse_pb2 as pb
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")


@pytest.fixture
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no runner end because this machine is busy."""
    monkeypatch.setattr(tuning, "TURN_SECONDS", 60.0)


def task_of_handler() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def test_short_handlers_share_a_task_but_not_its_contextvars(
    fake: FakePulsed, p: pulse.Pulse, running: Running, long_turns: None
) -> None:
    tasks: list[asyncio.Task[Any]] = []
    seen: list[str] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        assert pulse.current() is ctx
        tasks.append(task_of_handler())
        seen.append(variable.get())
        variable.set(ctx.job_id)

    async with running(p):
        fake.deliver(*(f"j{number}" for number in range(10)))
        await fake.until_async(lambda: len(fake.results) == 10)
    assert all(result.success for result in fake.results.values())
    assert len(set(tasks)) == 1
    assert seen == ["clean"] * 10


async def test_handler_that_waits_does_not_hold_up_the_jobs_behind_it(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    go = asyncio.Event()

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        if ctx.job_id == "waits":
            await go.wait()

    async with running(p):
        fake.deliver("first", "waits", "behind", "last")
        await fake.until_async(lambda: set(fake.results) == {"first", "behind", "last"})
        go.set()
        await fake.until_async(lambda: "waits" in fake.results)


async def test_handler_that_waited_ends_its_task(fake: FakePulsed, p: pulse.Pulse, running: Running) -> None:
    tasks: list[asyncio.Task[Any]] = []
    ended: list[str] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        task_of_handler().add_done_callback(lambda _: ended.append(ctx.job_id))
        tasks.append(task_of_handler())
        await asyncio.sleep(0)

    async with running(p):
        fake.deliver("j1", "j2", "j3", "j4")
        await fake.until_async(lambda: len(fake.results) == 4)
    assert len(set(tasks)) == 4
    assert ended == ["j1", "j2", "j3", "j4"]


async def test_contextvars_of_a_handler_last_while_it_waits(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    seen: dict[str, list[str]] = {"j1": [], "j2": []}

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        async def child() -> None:
            seen[ctx.job_id].append(variable.get())

        token = variable.set(ctx.job_id)
        await asyncio.sleep(0)
        seen[ctx.job_id].append(variable.get())
        await asyncio.create_task(child())
        assert pulse.current() is ctx
        variable.reset(token)
        seen[ctx.job_id].append(variable.get())

    async with running(p):
        fake.deliver("j1", "j2")
        await fake.until_async(lambda: len(fake.results) == 2)
    assert seen == {"j1": ["j1", "j1", "clean"], "j2": ["j2", "j2", "clean"]}


async def test_task_bears_the_name_of_its_job(fake: FakePulsed, p: pulse.Pulse, running: Running) -> None:
    names: list[str] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        names.append(task_of_handler().get_name())
        if ctx.job_id == "waits":
            await asyncio.sleep(0)
            names.append(task_of_handler().get_name())

    async with running(p):
        fake.deliver("short", "waits")
        await fake.until_async(lambda: len(fake.results) == 2)
    assert names == ["short", "waits", "waits"]


async def test_timeout_in_a_handler_cancels_that_handler_only(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    is_over = asyncio.Event()

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        if ctx.job_id == "bystander":
            await is_over.wait()
        elif ctx.job_id == "in time":
            async with asyncio.timeout(0):  # noqa: ASYNC100 — it never waits, which is the point
                pass
        elif ctx.job_id == "late":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
            assert not task_of_handler().cancelling()
            is_over.set()

    async with running(p):
        fake.deliver("bystander", "in time", "late", "next")
        await fake.until_async(lambda: len(fake.results) == 4)
    assert all(result.success for result in fake.results.values())


async def test_task_group_in_a_handler_fails_that_handler_only(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    async def fail() -> None:
        raise ValueError("a child")

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        if ctx.job_id == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await asyncio.Event().wait()

    async with running(p):
        fake.deliver("before", "group", "after")
        await fake.until_async(lambda: len(fake.results) == 3)
    assert fake.results["group"].error.startswith("ExceptionGroup")
    assert fake.results["before"].success
    assert fake.results["after"].success


async def test_canceling_a_job_leaves_the_others_running(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    is_stopped, go = asyncio.Event(), asyncio.Event()

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        if ctx.job_id == "canceled":
            try:
                await asyncio.Event().wait()
            finally:
                is_stopped.set()
        elif ctx.job_id == "beside":
            await go.wait()

    async with running(p):
        fake.deliver("short", "canceled", "beside", "behind")
        await fake.until_async(lambda: "short" in fake.results)
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="canceled", attempt=1, run=1)]))
        await is_stopped.wait()
        await fake.until_async(lambda: "behind" in fake.results)
        go.set()
        await fake.until_async(lambda: "beside" in fake.results)
    assert "canceled" not in fake.results
    assert fake.results["beside"].success


async def test_handler_that_cancels_itself_does_not_cancel_the_next(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        if ctx.job_id == "cancels":
            task_of_handler().cancel()
        else:
            await asyncio.sleep(0)

    async with running(p):
        fake.deliver("cancels", "next")
        await fake.until_async(lambda: len(fake.results) == 2)
    assert fake.results["next"].success


async def test_error_that_reached_a_handler_while_it_waited_is_its_own(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        failing = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failing.set_exception, ValueError())
        with pytest.raises(ValueError):  # noqa: PT011
            await failing
        assert pulse.current() is ctx
        assert sys.exception() is None

    async with running(p):
        fake.deliver("j1")
        await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].error == ""


async def test_failed_handler_does_not_end_its_runner(
    fake: FakePulsed, p: pulse.Pulse, running: Running, long_turns: None
) -> None:
    tasks: list[asyncio.Task[Any]] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        tasks.append(task_of_handler())
        if ctx.job_id == "fails":
            raise ValueError

    async with running(p):
        fake.deliver("fails", "next")
        await fake.until_async(lambda: len(fake.results) == 2)
    assert [fake.results[job_id].success for job_id in ("fails", "next")] == [False, True]
    assert tasks[0] is tasks[1]
