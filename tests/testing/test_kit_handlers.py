"""Handlers in a kit: time limits, middleware, resources, steps, workflows, and errors of the test itself."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

import pulse
from pulse.testing import Kit

SHORT = timedelta(milliseconds=50)


class Database:
    def get(self) -> str:
        return "row"


@pytest.fixture
def p() -> pulse.Pulse:
    return pulse.Pulse("localhost:1")


@pytest.fixture
def s() -> pulse.SyncPulse:
    return pulse.SyncPulse("localhost:1")


def test_def_handler_past_its_time_limit_is_retried(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("slow", timeout=SHORT)
    def slow() -> None:
        while True:
            time.sleep(0.001)

    slow.enqueue()
    ran = pulse_kit.run(pulse_kit.one(slow))
    assert ran.outcome == "retry"
    assert isinstance(ran.error, pulse.TimedOut)
    assert ran.job.history[-1].outcome == "timed_out"


def test_async_handler_past_its_time_limit_is_retried(pulse_kit: Kit, p: pulse.Pulse) -> None:
    @p.job("slow", timeout=SHORT)
    async def slow() -> None:
        await asyncio.sleep(30)

    asyncio.run(enqueue(slow))
    with pytest.raises(pulse.TimedOut, match=r"^The attempt took longer than its time limit of "):
        pulse_kit.drain()
    assert pulse_kit.one(slow).history[-1].outcome == "timed_out"


async def test_def_handler_in_an_async_test_has_its_time_limit(pulse_kit: Kit, p: pulse.Pulse) -> None:
    @p.job("slow", timeout=SHORT)
    def slow() -> None:
        while True:
            time.sleep(0.001)

    await slow.enqueue()
    assert await pulse_kit.adrain(errors="keep") == {"retry": 1}


def test_time_limit_of_a_policy_holds(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("slow")
    def slow() -> None:
        while True:
            time.sleep(0.001)

    s.set_topic("slow", attempt_timeout=SHORT)
    slow.enqueue()
    assert pulse_kit.run(pulse_kit.one(slow)).outcome == "retry"


def test_middleware_and_resources_surround_the_handler(pulse_kit: Kit, p: pulse.Pulse) -> None:
    log: list[str] = []

    @p.resource
    async def database() -> AsyncIterator[Database]:
        log.append("open")
        yield Database()
        log.append("close")

    @p.middleware
    async def around(call: pulse.JobCall, call_next: pulse.CallNext) -> None:
        log.append(f"before {call.context.topic}")
        await call_next()
        log.append("after")

    @p.enqueue_middleware
    async def stamped(enqueue: pulse.Enqueue, call_next: Any) -> Any:
        enqueue.metadata["tenant"] = "acme"
        return await call_next()

    @p.job("read")
    async def read(n: int, db: Database = pulse.INJECTED, *, ctx: pulse.Context) -> str:
        return f"{db.get()} for {ctx.metadata['tenant']}"

    job = asyncio.run(enqueue(read, n=1))
    assert pulse_kit.one(read).metadata == {"tenant": "acme"}
    assert pulse_kit.drain() == {"completed": 1}
    assert pulse_kit.result(job) == "row for acme"
    assert log == ["open", "before read", "after", "close"]


def test_resource_of_a_blocking_client_reaches_its_handler(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.resource
    def database() -> Iterator[Database]:
        yield Database()

    @s.job("read")
    def read(db: Database = pulse.INJECTED) -> str:
        return db.get()

    assert pulse_kit.run(read.enqueue()).result == "row"


def test_second_attempt_finds_its_steps_and_its_progress(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    calls: list[str] = []

    @s.job("twice")
    def twice(ctx: pulse.SyncContext) -> str:
        ctx.step("first", lambda: calls.append("first"))
        if ctx.attempt == 1:
            ctx.progress(0.5, "half", cursor=7)
            raise OSError("once")
        return f"{ctx.cursor} {ctx.attempt}"

    job = twice.enqueue()
    assert pulse_kit.run(job).outcome == "retry"
    assert pulse_kit.run(job).result == "7 2"
    assert calls == ["first"]


def test_workflow_runs_to_its_end(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("fetch")
    def fetch(n: int) -> int:
        return n

    @s.job("total")
    def total(ctx: pulse.SyncContext) -> int:
        return sum(parent.result for parent in ctx.parents)

    with s.workflow("nightly") as flow:
        parts = [flow.add(fetch, n=n, name=f"fetch-{n}") for n in (1, 2)]
        flow.add(total, after=parts, name="total")
    handle = flow.handle
    assert pulse_kit.drain() == {"completed": 3}
    assert pulse_kit.result(pulse_kit.one(total)) == 3
    assert handle.wait().status == "succeeded"


def test_workflow_shows_what_a_suspended_job_waits_for(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("approval")
    def approval(ctx: pulse.SyncContext) -> None:
        ctx.wait_for("approved")

    with s.workflow("order") as flow:
        flow.add(approval)
    pulse_kit.drain()
    (job,) = s.workflows.jobs(flow.handle.id)
    assert (job.status, job.waits_for) == ("RETRYING", "approved")


def test_wait_for_an_unfinished_workflow_is_refused(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("lone")
    def lone() -> None: ...

    with s.workflow("nightly") as flow:
        flow.add(lone)
    with pytest.raises(pulse.PulseError, match=r"pulse_kit.drain"):
        flow.handle.wait()


def test_handler_in_a_process_runs_in_the_test(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("heavy", process=True)
    def heavy(n: int) -> int:
        return n * n

    assert pulse_kit.run(heavy.enqueue(3)).result == 9


def test_hold_of_a_topic_does_nothing(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("held", running=1)
    def held(ctx: pulse.SyncContext) -> None:
        ctx.hold(timedelta(seconds=30))

    assert pulse_kit.run(held.enqueue()).outcome == "completed"


def test_failure_of_the_test_within_a_handler_is_the_tests(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("checks")
    def checks() -> None:
        pytest.fail("a fact does not hold")

    checks.enqueue()
    with pytest.raises(pytest.fail.Exception, match="a fact does not hold"):
        pulse_kit.drain(errors="keep")


def test_handler_that_exits_fails_its_job(pulse_kit: Kit, p: pulse.Pulse, s: pulse.SyncPulse) -> None:
    @p.job("exits")
    async def exits() -> None:
        sys.exit(3)

    s.enqueue("exits")
    assert pulse_kit.drain(errors="keep") == {"retry": 1}
    pulse_kit.advance(hours=1)
    with pytest.raises(SystemExit):
        pulse_kit.drain()
    pulse_kit.advance(hours=1)
    assert pulse_kit.drain(errors="keep") == {"retry": 1}


def test_unreadable_arguments_make_a_dead_letter(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("reads")
    def reads(n: int) -> None: ...

    other = pulse.SyncPulse("localhost:1")
    ran = pulse_kit.run(other.enqueue("reads", {"m": 1}))
    assert ran.outcome == "dead_lettered"
    assert "n" in (ran.job.last_error or "")


def test_handler_sees_the_contextvars_of_the_test(pulse_kit: Kit, p: pulse.Pulse, s: pulse.SyncPulse) -> None:
    tenant = contextvars.ContextVar("tenant", default="none")

    @s.job("tenant.plain")
    def plain() -> str:
        return tenant.get()

    @p.job("tenant.async")
    async def coroutine() -> str:
        return tenant.get()

    tenant.set("acme")
    assert [pulse_kit.run(s.enqueue(topic)).result for topic in ("tenant.plain", "tenant.async")] == [
        "acme",
        "acme",
    ]


def test_handler_cannot_drain(pulse_kit: Kit, s: pulse.SyncPulse) -> None:
    @s.job("nested")
    def nested() -> None:
        pulse_kit.drain()

    nested.enqueue()
    with pytest.raises(AssertionError, match="a handler cannot run other jobs"):
        pulse_kit.drain()


def test_endless_drain_is_ended(pulse_kit: Kit, s: pulse.SyncPulse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.testing.working.MOST_ATTEMPTS", 20)

    @s.job("again")
    def again() -> None:
        again.enqueue()

    again.enqueue()
    with pytest.raises(AssertionError, match="does 'again' enqueue itself"):
        pulse_kit.drain()


async def enqueue(job: Any, **args: Any) -> Any:
    return await job.enqueue(**args)
