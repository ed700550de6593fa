"""Sleeps and signals of handlers, at a real server: no attempt is spent, and no wait is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

import pulse
from pulse.handlers.step_calls import StepCalls
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.test_sdk_steps import ended
from tests.transport.pulse_server_under_test import ServerUnderTest

SOON, LATER = timedelta(milliseconds=10), timedelta(hours=1)
TOO_LONG = timedelta(days=3651)


@dataclass
class Decision:
    ok: bool


@pytest.fixture
async def p(server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, concurrency=4) as client:
        yield client


async def waiting(p: pulse.Pulse, job: pulse.JobHandle) -> pulse.JobInfo:
    """Return the job once it is suspended."""
    found: list[pulse.JobInfo] = []

    async def is_suspended() -> bool:
        found[:] = [await p.get_job(job.id)]
        return found[0].waits_for is not None

    await eventually(is_suspended, f"job {job.id} waits")
    return found[0]


async def test_sleeps_end_the_attempt_and_cost_none(p: pulse.Pulse, running: Running) -> None:
    passed: list[str] = []

    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        passed.append(f"begun {ctx.run}")
        await ctx.sleep(SOON)
        passed.append("once")
        await ctx.sleep(SOON)
        passed.append("twice")

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert passed == ["begun 1", "begun 2", "once", "begun 3", "once", "twice"]
    assert (info.status, info.suspensions, info.snoozes, info.attempts) == ("COMPLETED", 2, 0, 1)
    assert [step.name for step in await p.steps(info.id)] == ["sleep", "sleep#2"]


async def test_job_that_wakes_has_its_steps_and_calls_for_none(
    p: pulse.Pulse, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(StepCalls, "list_steps", lambda _self, request: calls.append(request))

    @p.job("async")
    async def in_loop(ctx: pulse.Context) -> str:
        charge = await ctx.step("charge", lambda: "charge-7")
        await ctx.sleep(SOON)
        return charge

    @p.job("def")
    def in_thread(ctx: pulse.SyncContext) -> str:
        charge = ctx.step("charge", lambda: "charge-7")
        ctx.sleep(SOON)
        return charge

    async with running(p):
        for topic in ("async", "def"):
            info = await ended(p, await p.enqueue(topic))
            assert (info.status, info.result, info.suspensions) == ("COMPLETED", "charge-7", 1)
    assert calls == []


async def test_job_that_sleeps_says_until_when_and_needs_no_slot(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address, concurrency=1) as p:

        @p.job("sleepy")
        async def sleepy(ctx: pulse.Context) -> None:
            await ctx.sleep(LATER)

        @p.job("work")
        async def work() -> None: ...

        task = asyncio.create_task(p.run(handle_signals=False))
        job = await p.enqueue("sleepy")
        info = await waiting(p, job)
        assert (info.status, info.waits_for) == ("RETRYING", "")
        assert info.next_run_at is not None
        assert [past.outcome for past in info.history] == ["suspended"]
        await ended(p, await p.enqueue("work"))
        task.cancel()
        await asyncio.wait({task})


async def test_signal_brings_its_value_to_the_job_that_waits(p: pulse.Pulse, running: Running) -> None:
    decisions: list[object] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        decisions.append(await ctx.wait_for("approved", returns=Decision, timeout=LATER))
        if len(decisions) == 1:
            raise pulse.Retry(SOON)

    async with running(p):
        job = await p.enqueue("work")
        info = await waiting(p, job)
        assert (info.waits_for, info.status) == ("approved", "RETRYING")
        await p.signal(job.id, "approved", Decision(ok=True))
        info = await ended(p, job)
    assert (info.status, decisions) == ("COMPLETED", [Decision(ok=True)] * 2)


async def test_signals_that_come_first_are_kept_in_order(p: pulse.Pulse, running: Running) -> None:
    values: list[object] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        values.append([await ctx.wait_for("item", index=i) for i in range(3)])

    job = await p.enqueue("work")
    for value in (1, None, {"a": [2]}):
        await p.signal(job.id, "item", value)
    async with running(p):
        info = await ended(p, job)
    assert values == [[1, None, {"a": [2]}]]
    assert info.suspensions == 0, "it never had to wait"


async def test_signal_that_does_not_come_in_time_raises_in_every_attempt(
    p: pulse.Pulse, running: Running
) -> None:
    late: list[int] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        try:
            await ctx.wait_for("approved", timeout=SOON)
        except pulse.SignalTimeout:
            late.append(ctx.run)
        if len(late) == 1:
            await p.signal(ctx.job_id, "approved")
            raise pulse.Retry(SOON)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, late) == ("COMPLETED", [2, 3])
    (step,) = await p.steps(info.id)
    assert step.timed_out


async def test_steps_before_a_sleep_do_not_run_again(p: pulse.Pulse, running: Running) -> None:
    ran: list[str] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> str:
        order = await ctx.step("charge", lambda: ran.append("charge") or "order-7")
        await ctx.sleep(SOON)
        ok = await ctx.wait_for("shipped")
        await ctx.step("mail", lambda: ran.append("mail"))
        return f"{order} {ok}"

    async with running(p):
        job = await p.enqueue("work")
        await p.signal(job.id, "shipped", True)
        info = await ended(p, job)
    assert (ran, info.result) == (["charge", "mail"], "order-7 True")


async def test_sleep_of_more_than_ten_years_fails_the_attempt_with_the_bound(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        await ctx.sleep(TOO_LONG)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert info.status == "DEAD_LETTERED"
    assert "ctx.sleep(delay) has to be at most 3650 days" in (info.last_error or "")


async def test_report_that_the_server_refuses_fails_the_attempt_with_its_sentence(
    p: pulse.Pulse, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.messages.LONGEST", TOO_LONG)  # as in an SDK that knows another bound

    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        ctx.progress(0.5, "half")
        await ctx.sleep(TOO_LONG)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, info.attempts, info.history[-1].outcome) == ("DEAD_LETTERED", 1, "failed")
    assert "pulsed refused the outcome of this attempt: suspension.delay" in (info.last_error or "")


async def test_handler_that_swallows_its_suspension_fails_with_a_sentence(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        try:
            await ctx.sleep(LATER)
        except BaseException:
            return

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert info.status == "DEAD_LETTERED"
    assert "went on after ctx.sleep()" in (info.last_error or "")


async def test_suspension_in_a_task_group_waits_for_the_steps_beside_it(
    p: pulse.Pulse, running: Running
) -> None:
    ran: list[int] = []
    slept = asyncio.Event()

    async def slow() -> int:
        ran.append(1)
        await slept.wait()
        return 1

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("slow", slow))
            group.create_task(sleep(ctx))

    async def sleep(ctx: pulse.Context) -> None:
        asyncio.get_running_loop().call_soon(slept.set)
        await ctx.sleep(SOON)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, ran, info.steps) == ("COMPLETED", [1], 2)


async def test_signal_to_a_finished_job_and_to_none_is_an_error(p: pulse.Pulse, running: Running) -> None:
    @p.job("work")
    async def handle() -> None: ...

    async with running(p):
        job = await p.enqueue("work")
        await ended(p, job)
        with pytest.raises(pulse.InvalidTransition, match="only jobs that are not finished take signals"):
            await p.signal(job.id, "approved")
        with pytest.raises(pulse.NotFound):
            await p.signal("00000000-0000-7000-8000-000000000000", "approved")


async def test_unit_tests_run_steps_at_once_and_have_the_signals_that_they_give() -> None:
    ctx = pulse.Context(signals={"approved": 7})
    assert await ctx.step("double", lambda number: number * 2, 4, index=1) == 8
    assert await ctx.sleep(LATER) is None
    assert await ctx.wait_for("approved") == 7
    assert await ctx.wait_for_any("rejected", "approved") == ("approved", 7)
    with pytest.raises(pulse.SignalTimeout):
        await ctx.wait_for("another")
