"""What becomes of a job over time is the same over the testing kit and over a real server."""

from __future__ import annotations

from typing import Any

import pytest

import pulse
from pulse import JobStatus
from tests.testing.queues import DAY, MINUTE, Queue, run_once


async def test_delayed_job_starts_when_it_is_due(queue: Queue) -> None:
    @queue.p.job("later")
    async def later() -> None: ...

    handle = await later.options(delay=DAY).enqueue()
    await queue.advance(0.9 * DAY)
    await queue.drain()
    assert (await queue.p.get_job(handle.id)).status is JobStatus.PENDING
    await queue.advance(0.2 * DAY)
    await queue.drain()
    assert (await queue.p.get_job(handle.id)).status is JobStatus.COMPLETED


async def test_higher_priority_then_older_jobs_run_first(queue: Queue) -> None:
    ran: list[str] = []

    @queue.p.job("ordered")
    async def ordered(name: str) -> None:
        ran.append(name)

    for name, priority in (("a", 0), ("b", 5), ("c", -5), ("d", 5), ("e", 0)):
        await ordered.options(priority=priority).enqueue(name)
    await queue.drain()
    assert ran == ["b", "d", "a", "e", "c"]


async def test_job_that_a_handler_enqueues_runs_too(queue: Queue) -> None:
    ran: list[int] = []

    @queue.p.job("counts")
    async def counts(n: int) -> None:
        ran.append(n)
        if n:
            await counts.enqueue(n - 1)

    await run_once(queue, counts, 3)
    assert ran == [3, 2, 1, 0]


async def test_def_handler_enqueues_without_await(queue: Queue) -> None:
    @queue.p.job("first")
    def first() -> str:
        return str(queue.p.enqueue("second", {"n": 1}).id)  # type: ignore[attr-defined]

    @queue.p.job("second")
    async def second(n: int) -> int:
        return n

    handle = await first.enqueue()
    await queue.drain()
    assert (await queue.p.get_job(await handle.result())).result == 1


async def test_key_makes_the_second_enqueue_a_duplicate(queue: Queue) -> None:
    first = await queue.p.enqueue("keyed", {"a": 1}, key="k")
    again = await queue.p.enqueue("keyed", {"a": 1}, key="k")
    assert (again.id, again.duplicate) == (first.id, True)
    with pytest.raises(pulse.AlreadyExists):
        await queue.p.enqueue("keyed", {"a": 2}, key="k")


@pytest.mark.parametrize("how", ["skip", "replace"])
async def test_unique_job_of_which_one_waits(queue: Queue, how: Any) -> None:
    unique = pulse.Unique(key="one", on_conflict=how)
    first = await queue.p.enqueue("unique", {"n": 1}, unique=unique)
    second = await queue.p.enqueue("unique", {"n": 2}, unique=unique)
    assert second.id == first.id
    stored = await queue.p.get_job(first.id)
    assert stored.args == {"n": 1 if how == "skip" else 2}


async def test_throttled_job_is_stored_once_in_its_period(queue: Queue) -> None:
    unique = pulse.Unique(key="one", on_conflict="throttle", period=MINUTE)

    @queue.p.job("throttled")
    async def throttled() -> None: ...

    first = await throttled.options(unique=unique).enqueue()
    await queue.drain()
    assert (await throttled.options(unique=unique).enqueue()).id == first.id
    await queue.advance(2 * MINUTE)
    assert (await throttled.options(unique=unique).enqueue()).id != first.id


async def test_job_that_does_not_start_in_time_is_canceled(queue: Queue) -> None:
    @queue.p.job("urgent")
    async def urgent() -> None: ...

    handle = await urgent.options(start_within=MINUTE).enqueue()
    await queue.advance(2 * MINUTE)
    await queue.drain()
    job = await queue.p.get_job(handle.id)
    assert (job.status, job.attempts) == (JobStatus.CANCELED, 0)


async def test_step_runs_once_over_attempts(queue: Queue) -> None:
    calls: list[str] = []

    @queue.p.job("steps", retry=lambda _attempt, _error: MINUTE)
    async def steps(ctx: pulse.Context) -> int:
        value = await ctx.step("one", lambda: calls.append("one") or 7)
        if ctx.attempt == 1:
            raise OSError("once")
        return value

    job = await run_once(queue, steps)
    assert job.steps == 1
    await queue.advance(2 * MINUTE)
    await queue.drain()
    assert (await queue.p.get_job(job.id)).result == 7
    assert calls == ["one"]


async def test_sleep_gives_the_attempt_back(queue: Queue) -> None:
    @queue.p.job("sleeps")
    def sleeps(ctx: pulse.SyncContext) -> int:
        ctx.sleep(3 * DAY)
        return ctx.attempt

    job = await run_once(queue, sleeps)
    assert (job.status, job.waits_for, job.attempts) == (JobStatus.RETRYING, "", 0)
    await queue.advance(2.9 * DAY)
    await queue.drain()
    assert (await queue.p.get_job(job.id)).waits_for == ""
    await queue.advance(0.2 * DAY)
    await queue.drain()
    ended = await queue.p.get_job(job.id)
    assert (ended.status, ended.result, ended.suspensions) == (JobStatus.COMPLETED, 1, 1)


@pytest.mark.parametrize("is_early", [True, False])
async def test_signal_reaches_the_job_once(queue: Queue, is_early: bool) -> None:
    @queue.p.job("waits")
    async def waits(ctx: pulse.Context) -> str:
        return await ctx.wait_for("go", returns=str)

    handle = await waits.enqueue()
    if is_early:
        await queue.p.signal(handle.id, "go", "now")
    await queue.drain()
    if not is_early:
        assert (await queue.p.get_job(handle.id)).waits_for == "go"
        await queue.p.signal(handle.id, "go", "now")
        await queue.drain()
    assert await handle.result() == "now"


async def test_signal_that_does_not_come_times_out(queue: Queue) -> None:
    @queue.p.job("waits")
    async def waits(ctx: pulse.Context) -> str:
        try:
            return await ctx.wait_for("go", returns=str, timeout=MINUTE)
        except pulse.SignalTimeout:
            return "gave up"

    job = await run_once(queue, waits)
    await queue.advance(2 * MINUTE)
    await queue.drain()
    assert (await queue.p.get_job(job.id)).result == "gave up"


async def test_canceled_job_does_not_run_until_it_is_retried(queue: Queue) -> None:
    ran: list[str] = []

    @queue.p.job("canceled")
    async def canceled() -> None:
        ran.append("ran")

    handle = await canceled.enqueue()
    await queue.p.cancel(handle.id, reason="no")
    await queue.drain()
    assert ran == []
    await queue.p.retry(handle.id)
    await queue.drain()
    assert ran == ["ran"]
    assert (await queue.p.get_job(handle.id)).status is JobStatus.COMPLETED


async def test_retried_dead_letter_has_further_attempts(queue: Queue) -> None:
    @queue.p.job("dead", max_attempts=1)
    async def dead(ctx: pulse.Context) -> int:
        if ctx.attempt == 1:
            raise OSError("once")
        return ctx.attempt

    job = await run_once(queue, dead)
    assert job.status is JobStatus.DEAD_LETTERED
    await queue.p.retry(job.id)
    await queue.drain()
    assert (await queue.p.get_job(job.id)).result == 2


async def test_progress_of_a_failed_attempt_reaches_the_next(queue: Queue) -> None:
    @queue.p.job("progress", retry=lambda _attempt, _error: MINUTE)
    async def progress(ctx: pulse.Context) -> Any:
        if ctx.attempt == 1:
            ctx.progress(0.5, "half", cursor=[3])
            raise OSError("once")
        return ctx.cursor

    job = await run_once(queue, progress)
    await queue.advance(2 * MINUTE)
    await queue.drain()
    assert (await queue.p.get_job(job.id)).result == [3]


async def test_many_jobs_are_stored_and_run(queue: Queue) -> None:
    ran: list[int] = []

    @queue.p.job("many")
    async def many(n: int) -> None:
        ran.append(n)

    handles = await many.enqueue_many([{"n": n} for n in range(50)])
    await queue.drain()
    assert len({handle.id for handle in handles}) == 50
    assert sorted(ran) == list(range(50))


async def test_metadata_and_lane_reach_the_handler(queue: Queue) -> None:
    @queue.p.job("meta", per_lane=1)
    async def meta(ctx: pulse.Context) -> list[Any]:
        return [dict(ctx.metadata), ctx.lane, ctx.priority, ctx.max_attempts]

    handle = await meta.options(metadata={"a": "b"}, lane="ada", priority=3, max_attempts=4).enqueue()
    await queue.drain()
    assert await handle.result() == [{"a": "b"}, "ada", 3, 4]
