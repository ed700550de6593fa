"""Steps together with failures beside them, snoozes, cancels, large results and time limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.test_sdk_sleeps import waiting
from tests.sdk.test_sdk_steps import ended
from tests.transport.pulse_server_under_test import ServerUnderTest

SOON = timedelta(milliseconds=10)
LIMIT = timedelta(seconds=3)  # enough on a busy machine for an attempt that stands nowhere


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, concurrency=4) as client:
        yield client


async def test_step_that_outlives_its_attempt_stores_nothing(p: pulse.Pulse, running: Running) -> None:
    """With gather the other steps go on when one fails: the next attempt runs them, and its values count."""
    go = asyncio.Event()
    left: list[asyncio.Task[int]] = []

    async def slow(attempt: int) -> int:
        if attempt == 1:
            await go.wait()
        return attempt

    def failing(attempt: int) -> None:
        if attempt == 1:
            raise ValueError("no luck")

    @p.job("work", retry=pulse.Backoff(first=SOON))
    async def handle(ctx: pulse.Context) -> int:
        task = asyncio.ensure_future(ctx.step("slow", slow, ctx.attempt))
        left.append(task)
        value, _ = await asyncio.gather(task, ctx.step("failing", failing, ctx.attempt))
        go.set()
        await asyncio.wait({left[0]})
        return value

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, info.result, info.attempts) == ("COMPLETED", 2, 2)
    assert isinstance(left[0].exception(), pulse.Cancelled)


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_sleep_inside_of_a_step_is_an_error_that_names_the_step(
    p: pulse.Pulse, running: Running, kind: str
) -> None:
    @p.job("async", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        await ctx.step("outer", lambda: ctx.step("inner", lambda: ctx.sleep(SOON)))

    @p.job("def", max_attempts=1)
    def handle_in_thread(ctx: pulse.SyncContext) -> None:
        ctx.step("outer", lambda: ctx.step("inner", lambda: ctx.wait_for("never")))

    async with running(p):
        info = await ended(p, await p.enqueue(kind))
    assert info.status == "DEAD_LETTERED"
    assert "is called inside of step 'inner'" in (info.last_error or "")


async def test_step_of_a_task_group_that_cannot_be_stored_is_a_dead_letter_at_once(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("small", int))
            group.create_task(ctx.step("large", lambda: "x" * 2_000_000))

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, info.attempts) == ("DEAD_LETTERED", 1)
    assert "PULSE_MAX_STEP_BYTES" in (info.last_error or "")


async def test_snooze_keeps_the_steps(p: pulse.Pulse, running: Running) -> None:
    ran: list[int] = []

    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        await ctx.step("once", lambda: ran.append(ctx.run))
        if ctx.run < 3:
            raise pulse.Snooze(SOON)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, info.snoozes, info.suspensions, ran) == ("COMPLETED", 2, 0, [1])


async def test_job_that_waits_for_a_signal_can_be_canceled_and_retried(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def handle(ctx: pulse.Context) -> int:
        first = await ctx.step("first", lambda: ctx.attempt)
        return first + int(await ctx.wait_for("more"))

    async with running(p):
        job = await p.enqueue("work")
        await waiting(p, job)
        info = await p.cancel(job.id)
        assert (info.status, info.waits_for) == ("CANCELED", None)
        with pytest.raises(pulse.InvalidTransition):
            await p.signal(job.id, "more", 10)
        await p.retry(job.id)
        await waiting(p, job)
        await p.signal(job.id, "more", 10)
        info = await ended(p, job)
    assert (info.status, info.result) == ("COMPLETED", 11)


async def test_result_that_is_too_large_leaves_the_steps_to_a_retry(p: pulse.Pulse, running: Running) -> None:
    ran: list[int] = []
    sizes = [100_000, 1]

    @p.job("work")
    async def handle(ctx: pulse.Context) -> str:
        await ctx.step("once", lambda: ran.append(ctx.attempt))
        return "x" * sizes.pop(0)

    async with running(p):
        job = await p.enqueue("work")
        info = await ended(p, job)
        assert (info.status, info.steps) == ("DEAD_LETTERED", 1)
        assert "PULSE_MAX_RESULT" in (info.last_error or "")
        await p.retry(job.id)
        info = await ended(p, job)
    assert (info.status, info.result, ran) == ("COMPLETED", "x", [1])


async def test_time_limit_between_two_steps_keeps_the_first(p: pulse.Pulse, running: Running) -> None:
    ran: list[str] = []

    async def second(attempt: int) -> None:
        ran.append(f"second in {attempt}")
        if attempt == 1:
            await asyncio.Event().wait()

    @p.job("work", timeout=LIMIT, retry=pulse.Backoff(first=SOON))
    async def handle(ctx: pulse.Context) -> None:
        await ctx.step("first", lambda: ran.append(f"first in {ctx.attempt}"))
        await ctx.step("second", second, ctx.attempt)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert info.status == "COMPLETED"
    assert [past.outcome for past in info.history] == ["timed_out"]
    assert ran == ["first in 1", "second in 1", "second in 2"]


async def test_time_limit_ends_an_async_step_of_a_def_handler(p: pulse.Pulse, running: Running) -> None:
    ended_by: list[str] = []

    async def slow(attempt: int) -> None:
        try:
            if attempt == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended_by.append("canceled")
            raise

    @p.job("work", timeout=LIMIT, retry=pulse.Backoff(first=SOON))
    def handle(ctx: pulse.SyncContext) -> None:
        try:
            ctx.step("slow", slow, ctx.attempt)
        except pulse.TimedOut:
            ended_by.append("timed out")
            raise

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, [past.outcome for past in info.history]) == ("COMPLETED", ["timed_out"])
    assert sorted(ended_by) == ["canceled", "timed out"]


@pytest.mark.parametrize("in_group", [False, True], ids=["alone", "in a task group"])
async def test_claim_lost_during_a_step_neither_stores_it_nor_reports(
    p: pulse.Pulse,
    running: Running,
    server: ServerUnderTest,
    caplog: pytest.LogCaptureFixture,
    in_group: bool,
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def work(ctx: pulse.Context) -> None:
        begun.set()
        await go.wait()
        ctx.progress(0.5, "half", cursor=1)

    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        try:
            if in_group:
                async with asyncio.TaskGroup() as group:
                    group.create_task(ctx.step("work", work, ctx))
            else:
                await ctx.step("work", work, ctx)
        except (pulse.Cancelled, BaseExceptionGroup):
            ctx.progress(0.9, "too late")
            seen.append("stopped")
            raise

    async with running(p):
        job = await p.enqueue("work")
        await begun.wait()
        await server.table.connection.execute(
            "UPDATE pulse.jobs SET attempts = 2, max_attempts = 3 WHERE id = $1", job.id
        )
        go.set()

        async def has_stopped() -> bool:
            return seen == ["stopped"]

        await eventually(has_stopped, "the handler stops")
    assert "failed" not in caplog.text
    info = await p.get_job(job.id)
    assert (info.status, info.steps, info.progress, info.history) == ("RUNNING", 0, None, ())


@pytest.mark.parametrize("verb", ["step", "sleep", "wait_for"])
async def test_name_with_a_lone_surrogate_is_refused_with_a_sentence(
    p: pulse.Pulse, running: Running, verb: str
) -> None:
    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        match verb:
            case "step":
                await ctx.step("a\ud800", int)
            case "sleep":
                await ctx.sleep(SOON, name="a\ud800")
            case _:
                await ctx.wait_for("a\ud800")

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.last_error or "").startswith("InvalidArgument: The name 'a\\ud800' cannot be stored")
