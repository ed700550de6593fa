"""How attempts end is the same over the testing kit and over a real server."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

import pulse
from pulse import JobStatus
from tests.testing.queues import DAY, MINUTE, Queue, run_once


@dataclass
class Point:
    x: int
    at: datetime | None = None


@pytest.mark.parametrize("value", [None, 0, "é", [1, {"a": None}], 2**53, True, 1.5])
async def test_result_survives_its_encoding(queue: Queue, value: Any) -> None:
    @queue.p.job("echo")
    async def echo(value: Any) -> Any:
        return value

    handle = await echo.enqueue(value)
    await queue.drain()
    assert await handle.result() == value
    assert (await queue.p.get_job(handle.id)).attempts == 1


async def test_typed_arguments_and_results(queue: Queue) -> None:
    @queue.p.job("move")
    def move(point: Point) -> Point:
        return Point(point.x + 1, point.at)

    at = datetime.fromisoformat("2030-01-01T00:00:00+00:00")
    handle = await move.enqueue(Point(1, at))
    await queue.drain()
    assert await handle.result() == Point(2, at)


async def test_unreadable_arguments_make_a_dead_letter(queue: Queue) -> None:
    @queue.p.job("move")
    async def move(point: Point) -> None: ...

    other = pulse.Pulse("localhost:1")
    handle = await other.enqueue("move", {"y": 1})
    await queue.drain()
    job = await queue.p.get_job(handle.id)
    assert (job.status, job.attempts) == (JobStatus.DEAD_LETTERED, 1)
    assert "x" in (job.last_error or "")
    await other.close()


async def test_failure_waits_and_runs_again(queue: Queue) -> None:
    @queue.p.job("fails", retry=pulse.Backoff(first=MINUTE, factor=2, longest=DAY, jitter=0))
    async def fails(ctx: pulse.Context) -> str:
        if ctx.attempt < 3:
            raise OSError(f"attempt {ctx.attempt}")
        return "at last"

    job = await run_once(queue, fails)
    assert (job.status, job.attempts) == (JobStatus.RETRYING, 1)
    await queue.advance(0.9 * MINUTE)
    await queue.drain()
    assert (await queue.p.get_job(job.id)).attempts == 1
    await queue.advance(0.2 * MINUTE)
    await queue.drain()
    await queue.advance(1.9 * MINUTE)
    await queue.drain()
    assert (await queue.p.get_job(job.id)).attempts == 2
    await queue.advance(0.2 * MINUTE)
    await queue.drain()
    ended = await queue.p.get_job(job.id)
    assert (ended.status, ended.result) == (JobStatus.COMPLETED, "at last")
    assert [attempt.outcome for attempt in ended.history] == ["failed", "failed"]


async def test_last_attempt_makes_a_dead_letter(queue: Queue) -> None:
    @queue.p.job("fails", max_attempts=2, retry=lambda _attempt, _error: MINUTE)
    async def fails() -> None:
        raise OSError("boom")

    job = await run_once(queue, fails)
    await queue.advance(2 * MINUTE)
    await queue.drain()
    ended = await queue.p.get_job(job.id)
    assert (ended.status, ended.attempts) == (JobStatus.DEAD_LETTERED, 2)
    assert (ended.last_error or "").startswith("OSError: boom")
    assert [attempt.outcome for attempt in ended.history] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("error", "status", "attempts", "outcome"),
    [
        (pulse.Retry(after=MINUTE, reason="later"), JobStatus.RETRYING, 1, "failed"),
        (pulse.Snooze(MINUTE, "later"), JobStatus.RETRYING, 0, "snoozed"),
        (pulse.Discard("never"), JobStatus.DEAD_LETTERED, 1, "discarded"),
    ],
)
async def test_outcome_that_a_handler_chooses(
    queue: Queue, error: Exception, status: JobStatus, attempts: int, outcome: str
) -> None:
    @queue.p.job("chooses")
    async def chooses() -> None:
        raise error

    job = await run_once(queue, chooses)
    assert (job.status, job.attempts) == (status, attempts)
    assert [attempt.outcome for attempt in job.history] == [outcome]


@pytest.mark.parametrize("option", ["discard_on", "retry_on"])
async def test_errors_that_are_not_retried(queue: Queue, option: str) -> None:
    kinds = {"discard_on": (ValueError,), "retry_on": (OSError,)}[option]

    async def fails() -> None:
        raise ValueError("wrong")

    job = await run_once(queue, queue.p.job("fails", **{option: kinds})(fails))  # type: ignore[call-overload]
    assert (job.status, job.attempts) == (JobStatus.DEAD_LETTERED, 1)


@pytest.mark.parametrize("is_async", [True, False])
async def test_attempt_past_its_time_limit_is_retried(queue: Queue, is_async: bool) -> None:
    async def waits() -> None:
        await asyncio.sleep(60)

    def loops() -> None:
        while True:
            time.sleep(0.001)

    slow = queue.p.job("slow", timeout=timedelta(milliseconds=50))(waits if is_async else loops)
    job = await run_once(queue, slow)
    assert (job.status, job.attempts) == (JobStatus.RETRYING, 1)
    assert [attempt.outcome for attempt in job.history] == ["timed_out"]
    assert (job.last_error or "").startswith(
        "TimedOut: The attempt took longer than its time limit of 0:00:00.050000.\n"
    )


@pytest.mark.parametrize("is_async", [True, False])
async def test_cancel_interrupts_the_running_handler(queue: Queue, is_async: bool) -> None:
    seen: list[tuple[type[BaseException], bool]] = []
    threads: list[threading.Thread] = []

    async def waits(ctx: pulse.Context) -> None:
        try:
            await queue.p.cancel(ctx.job_id, reason="no more")
            await asyncio.sleep(60)
        except BaseException as error:
            seen.append((type(error), ctx.cancelled))
            raise

    def loops(ctx: pulse.SyncContext) -> None:
        def cancel() -> None:
            asyncio.run(queue.p.cancel(ctx.job_id, reason="no more"))

        try:
            # In another thread: this one may be interrupted while it closes an event loop.
            threads.append(threading.Thread(target=contextvars.copy_context().run, args=(cancel,)))
            threads[0].start()
            while True:
                time.sleep(0.001)
        except BaseException as error:
            seen.append((type(error), ctx.cancelled))
            raise

    job = await run_once(queue, queue.p.job("stops")(waits if is_async else loops))
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert seen == [(asyncio.CancelledError if is_async else pulse.Cancelled, True)]
    assert (job.status, job.last_error) == (JobStatus.CANCELED, "no more")
    assert [attempt.outcome for attempt in job.history] == ["canceled"]


async def test_handler_that_goes_on_after_its_cancel_is_canceled(queue: Queue) -> None:
    @queue.p.job("goes-on")
    async def goes_on(ctx: pulse.Context) -> int:
        with contextlib.suppress(asyncio.CancelledError):
            await queue.p.cancel(ctx.job_id)
            await asyncio.sleep(60)
        return 7

    job = await run_once(queue, goes_on)
    assert (job.status, job.result) == (JobStatus.CANCELED, None)


@pytest.mark.parametrize("limits", [{}, {"running": 1}], ids=["unlimited", "limited"])
async def test_hold_needs_limits(queue: Queue, limits: Any) -> None:
    @queue.p.job("holds", max_attempts=1, **limits)
    async def holds(ctx: pulse.Context) -> None:
        await ctx.hold(MINUTE)

    job = await run_once(queue, holds)
    if limits:
        assert job.status is JobStatus.COMPLETED
    else:
        assert "InvalidArgument: topic 'holds' has no limits, so it cannot be held" in (job.last_error or "")
