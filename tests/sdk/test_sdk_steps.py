"""Steps of handlers, at a real server: run once, kept for the next attempt, read back in their type."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.transport.pulse_server_under_test import ServerUnderTest

SOON = timedelta(milliseconds=10)


@dataclass
class Row:
    number: int


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, concurrency=4) as client:
        yield client


async def ended(p: pulse.Pulse, job: pulse.JobHandle) -> pulse.JobInfo:
    """Return the job once it has finished."""
    found: list[pulse.JobInfo] = []

    async def is_finished() -> bool:
        found[:] = [await p.get_job(job.id)]
        return found[0].finished_at is not None

    await eventually(is_finished, f"job {job.id} finishes")
    return found[0]


async def test_step_runs_once_and_a_later_attempt_reads_its_value_back(
    p: pulse.Pulse, running: Running
) -> None:
    ran: list[int] = []
    seen: list[object] = []

    async def fetch(number: int) -> list[Row]:
        ran.append(number)
        return [Row(number)]

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        seen.append(await ctx.step("fetch", fetch, 7))
        if ctx.attempt == 1:
            raise pulse.Retry(SOON)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, info.steps, ran) == ("COMPLETED", 1, [7])
    assert seen == [[Row(7)], [Row(7)]]
    (step,) = await p.steps(info.id)
    assert (step.name, step.kind, step.attempt, step.size) == ("fetch", "step", 1, 14)


async def test_step_without_an_annotation_returns_plain_values_in_the_first_attempt_too(
    p: pulse.Pulse, running: Running
) -> None:
    seen: list[object] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        seen.append(await ctx.step("pair", lambda: (1, Row(2))))
        seen.append(await ctx.step("nothing", lambda: None))
        if ctx.attempt == 1:
            raise pulse.Retry(SOON)

    async with running(p):
        await ended(p, await p.enqueue("work"))
    assert seen == [[1, {"number": 2}], None] * 2


async def test_step_that_calls_a_class_returns_one_of_it_in_every_attempt(
    p: pulse.Pulse, running: Running
) -> None:
    seen: list[object] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        seen.append(await ctx.step("row", Row, 7))
        if ctx.attempt == 1:
            raise pulse.Retry(SOON)

    async with running(p):
        await ended(p, await p.enqueue("work"))
    assert seen == [Row(7), Row(7)]


async def test_step_that_raises_stores_nothing_and_runs_again(p: pulse.Pulse, running: Running) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise pulse.Retry(SOON)
        return "done"

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        assert await ctx.step("flaky", flaky) == "done"

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, len(tries), info.steps) == ("COMPLETED", 2, 1)


async def test_steps_run_in_parallel_and_in_loops_with_an_index(p: pulse.Pulse, running: Running) -> None:
    ran: list[int] = []
    meeting = asyncio.Barrier(3)

    async def page(number: int) -> int:
        ran.append(number)
        await meeting.wait()
        return number * 10

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        pages = await asyncio.gather(*(ctx.step("page", page, i, index=i) for i in range(3)))
        assert pages == [0, 10, 20]
        if ctx.attempt == 1:
            raise pulse.Retry(SOON)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert sorted(ran) == [0, 1, 2]
    assert {step.name for step in await p.steps(info.id)} == {"page#0", "page#1", "page#2"}


async def test_name_that_is_used_twice_is_an_error_that_names_both_places(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work", max_attempts=1)
    async def handle(ctx: pulse.Context) -> None:
        await ctx.step("fetch", int)
        await ctx.step("fetch", int)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    error = info.last_error or ""
    assert info.status == "DEAD_LETTERED"
    assert "'fetch' is used twice" in error
    assert error.splitlines()[0].count("test_sdk_steps.py:") == 2


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), "The value of step 'fetch' of type object cannot be written as JSON"),
        ([float("nan")], "The value of step 'fetch' has NaN or infinity"),
        (b"bytes", "-> bytes"),
        ("x" * 2_000_000, "PULSE_MAX_STEP_BYTES"),
    ],
    ids=["object", "nan", "bytes", "large"],
)
async def test_value_that_cannot_be_stored_is_a_dead_letter_with_a_sentence(
    p: pulse.Pulse, running: Running, value: object, problem: str
) -> None:
    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        await ctx.step("fetch", lambda: value)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, info.attempts) == ("DEAD_LETTERED", 1)
    assert problem in (info.last_error or "")


async def test_value_that_the_code_reads_no_longer_is_a_dead_letter_with_a_sentence(
    p: pulse.Pulse, running: Running
) -> None:
    def before() -> str:
        return "seven"

    def after() -> int:
        return 7

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        await ctx.step("fetch", before if ctx.attempt == 1 else after)
        raise pulse.Retry(SOON)

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert (info.status, info.attempts) == ("DEAD_LETTERED", 2)
    assert "A stored value cannot be read as <class 'int'>: Expected `int`, got `str`" in (
        info.last_error or ""
    )


async def test_bytes_are_read_back_as_they_are(p: pulse.Pulse, running: Running) -> None:
    seen: list[bytes] = []

    def raw() -> bytes:
        return b"\x00\xff"

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        seen.append(await ctx.step("raw", raw))
        if ctx.attempt == 1:
            raise pulse.Retry(SOON)

    async with running(p):
        await ended(p, await p.enqueue("work"))
    assert seen == [b"\x00\xff"] * 2


async def test_step_whose_kind_has_changed_is_a_dead_letter_with_a_sentence(
    p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        if ctx.attempt == 1:
            await ctx.step("pause", int)
            raise pulse.Retry(SOON)
        await ctx.sleep(SOON, name="pause")

    async with running(p):
        info = await ended(p, await p.enqueue("work"))
    assert info.status == "DEAD_LETTERED"
    assert "is a sleep, but attempt 1 stored a step" in (info.last_error or "")


async def test_stored_steps_that_no_code_asks_for_are_named_in_a_warning(
    p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        await ctx.step(f"of attempt {ctx.attempt}", int)
        if ctx.attempt == 1:
            raise pulse.Retry(SOON)

    with caplog.at_level(logging.WARNING, "pulse.worker"):
        async with running(p):
            await ended(p, await p.enqueue("work"))
    assert "did not ask for steps that an earlier attempt has stored: of attempt 1." in caplog.text


async def test_redrive_continues_after_its_steps_and_a_fresh_one_starts_over(
    p: pulse.Pulse, running: Running
) -> None:
    ran: list[int] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        await ctx.step("count", lambda: ran.append(ctx.attempt))
        if ctx.attempt < 3:
            raise pulse.Discard("no")

    async with running(p):
        job = await p.enqueue("work")
        await ended(p, job)
        await p.retry(job.id)
        await ended(p, job)
        assert ran == [1]
        await p.retry(job.id, fresh=True)
        await ended(p, job)
    assert ran == [1, 3]


async def test_handler_whose_claim_is_lost_stops_at_its_next_step(
    p: pulse.Pulse, running: Running, server: ServerUnderTest
) -> None:
    went_on: list[str] = []
    begun, go, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        begun.set()
        try:
            await go.wait()
            await ctx.step("after", int)
        except (pulse.Cancelled, asyncio.CancelledError):  # a heartbeat may be the first to find out
            refused.set()
            raise
        went_on.append(ctx.job_id)

    async with running(p):
        job = await p.enqueue("work")
        await begun.wait()
        # Another worker has it by now, and this one does not know.
        await server.table.connection.execute("UPDATE pulse.jobs SET attempts = 2 WHERE id = $1", job.id)
        go.set()
        await refused.wait()
    assert went_on == []
    assert await p.steps(job.id) == []
