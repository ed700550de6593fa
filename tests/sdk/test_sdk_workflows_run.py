"""Workflows that run: a real server, and workers of both clients."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.transport.pulse_server_under_test import ServerUnderTest

PATIENCE = timedelta(seconds=60)


@dataclass
class Rows:
    count: int


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, concurrency=4) as client:
        yield client


async def test_child_runs_after_its_parents_and_reads_their_results(p: pulse.Pulse, running: Running) -> None:
    @p.job("extract")
    async def extract(day: str) -> Rows:
        return Rows(len(day))

    @p.job("load")
    async def load(ctx: pulse.Context) -> int:
        first: Rows = (await ctx.parents["extract-mon"]).result
        assert first == Rows(3)
        return sum([parent.result.count async for parent in ctx.parents])

    @p.job("notify")
    def notify(ctx: pulse.SyncContext) -> str:
        return f"{ctx.parents['load'].result} rows"

    async with p.workflow("nightly") as flow:
        parts = [flow.add(extract, day, name=f"extract-{day}") for day in ("mon", "tues")]
        loaded = flow.add(load, after=parts)
        last = flow.add(notify, after=loaded, when="always")
    run = flow.handle
    waiting = await p.get_job(run.jobs["load"].id)
    assert (waiting.status, waiting.waits_for_jobs, waiting.workflow_id) == ("PENDING", True, run.id)
    (topic,) = [topic for topic in await p.topics() if topic.topic == "load"]
    assert (topic.waiting_for_jobs, topic.waiting) == (1, 0)
    async with running(p):
        rows: int = await run.result(loaded, PATIENCE)
        assert rows == 7
        assert await run.result(last, PATIENCE) == "7 rows"
        ended = await run.wait(PATIENCE)
    assert (ended.status, ended.jobs, ended.succeeded) == (pulse.WorkflowStatus.SUCCEEDED, 4, 4)
    assert ended == await p.workflows.get(run.id)


async def test_parents_on_several_pages_are_all_read(p: pulse.Pulse, running: Running) -> None:
    @p.job("part")
    async def part(number: int) -> int:
        return number

    @p.job("total")
    async def total(ctx: pulse.Context) -> int:
        return sum([parent.result async for parent in ctx.parents])

    run = await p.start(pulse.group(part.s(number) for number in range(1_200)).then(total.s()), name="sum")
    async with running(p):
        assert await run.result("total", PATIENCE) == sum(range(1_200))


async def test_failure_cancels_what_waits_and_a_retry_runs_it(p: pulse.Pulse, running: Running) -> None:
    may_succeed = asyncio.Event()
    ran: list[str] = []

    @p.job("fetch")
    async def fetch() -> None:
        ran.append("fetch")

    @p.job("parse", max_attempts=1)
    async def parse() -> None:
        ran.append("parse")
        if not may_succeed.is_set():
            raise ValueError("not yet")

    @p.job("store")
    async def store() -> None:
        ran.append("store")

    @p.job("mend")
    async def mend(ctx: pulse.Context) -> None:
        assert "not yet" in ((await ctx.parents["parse"]).error or "")
        ran.append("mend")

    async with p.workflow("import") as flow:
        fetched = flow.add(fetch)
        parsed = flow.add(parse, after=fetched)
        flow.add(store, after=parsed)
        flow.add(mend, after=parsed, when="failed")
        skipped = flow.add("never", after=fetched, when="failed")
    run = flow.handle
    async with running(p):
        ended = await run.wait(PATIENCE)
        assert (ended.status, ended.failed, ended.canceled, ended.skipped) == ("failed", 1, 1, 1)
        with pytest.raises(pulse.JobFailed, match="not yet"):
            await run.result(parsed)
        with pytest.raises(pulse.JobCanceled):
            await run.result(skipped)
        jobs = {job.name: job async for job in p.workflows.iter_jobs(run.id, page_size=2)}
        assert [job.state for job in jobs.values()] == ["ready", "ready", "dropped", "ready", "skipped"]
        assert (jobs["never"].outcome, jobs["never"].parents) == (pulse.JobOutcome.SKIPPED, (1,))
        may_succeed.set()
        await run.retry()
        await eventually(lambda: "store" in ran, "the job that was canceled runs")
        ended = await run.wait(PATIENCE)
    assert (ended.status, ended.succeeded, ended.skipped) == ("succeeded", 4, 1)
    assert sorted(ran) == ["fetch", "mend", "parse", "parse", "store"], "completed jobs do not run again"


async def test_running_job_adds_jobs_that_a_waiting_one_waits_for(p: pulse.Pulse, running: Running) -> None:
    ran: list[str] = []

    @p.job("page")
    async def page(number: int) -> int:
        ran.append(f"page {number}")
        return number

    @p.job("list", max_attempts=2)
    async def list_pages(ctx: pulse.Context) -> None:
        for number in (1, 2):
            await ctx.workflow.add(page, number, name=f"page-{number}", before="collect")
        last = await ctx.workflow.add(page, 3, after="page-1", before="collect")
        assert last.topic == "page"
        if ctx.attempt == 1:
            raise pulse.Retry(after=timedelta(milliseconds=10))
        with pytest.raises(pulse.InvalidTransition, match="has no job named 'nothing'"):
            await ctx.workflow.add(page, 4, after="nothing")

    @p.job("collect")
    async def collect(ctx: pulse.Context) -> list[int]:
        with pytest.raises(pulse.InvalidTransition, match="no longer waits"):
            await ctx.workflow.add(page, 5, before="collect")
        return [parent.result async for parent in ctx.parents if parent.topic == "page"]

    run = await p.start(pulse.chain(list_pages.s(), collect.s()))
    async with running(p):
        assert await run.result("collect", PATIENCE) == [1, 2, 3]
        assert (await run.wait(PATIENCE)).jobs == 5
    assert sorted(ran) == ["page 1", "page 2", "page 3"], "the second attempt has added nothing"
    assert await (await run.job("page-2")).result() == 2


async def test_job_outside_of_a_workflow_starts_one_by_adding(p: pulse.Pulse, running: Running) -> None:
    @p.job("plain", max_attempts=1)
    async def plain(ctx: pulse.Context) -> int:
        with pytest.raises(pulse.InvalidTransition, match="belongs to no workflow"):
            await ctx.parents["fetch"]
        await ctx.workflow.add("child", name="child", after=ctx.topic)
        return 7

    @p.job("child")
    def child(ctx: pulse.SyncContext) -> int:
        return 2 * sum(parent.result for parent in ctx.parents)

    async with running(p):
        job = await plain.enqueue()
        await job.wait(PATIENCE)
        (started,) = await p.workflows.list(name="plain")
        run = p.workflows.handle(started.id)
        assert await run.result("child", PATIENCE) == 14
        assert (await run.wait(PATIENCE)).succeeded == 2


async def test_repeat_of_a_workflow_returns_its_jobs(p: pulse.Pulse) -> None:
    own = uuid.uuid4()
    handles = []
    for _ in range(2):
        async with p.workflow("nightly", id=own) as flow:
            flow.add("b", after=flow.add("a"))
        handles.append(flow.handle)
    assert [handle.duplicate for handle in handles] == [False, True]
    assert handles[0].jobs == handles[1].jobs
    with pytest.raises(pulse.AlreadyExists, match="belongs to another workflow"):
        async with p.workflow("nightly", id=own) as flow:
            flow.add("c")


async def test_taken_unique_key_refuses_the_whole_workflow(p: pulse.Pulse) -> None:
    await p.enqueue("b", unique=pulse.Unique("k"))
    with pytest.raises(pulse.AlreadyExists, match=r"unique keys of .*b"):  # noqa: PT012 - its end raises
        async with p.workflow("nightly") as flow:
            flow.add("a")
            flow.add("b", unique=pulse.Unique("k"))
    assert len(await p.list_jobs(topic="a")) == 0
    assert len(await p.workflows.list()) == 0


async def test_canceled_workflow_starts_nothing_more(p: pulse.Pulse, running: Running) -> None:
    async with p.workflow("nightly") as flow:
        flow.add("b", after=flow.add("a"), when="always")
    run = flow.handle
    canceled = await run.cancel("not tonight")
    assert canceled.status == "canceled"
    ended = await run.wait(PATIENCE)
    assert (ended.canceled, ended.unfinished) == (2, 0)
    with pytest.raises(pulse.JobCanceled, match="not tonight"):
        await run.result("a")
    assert [flow.id async for flow in p.workflows.iter(status="canceled", name="nightly")] == [run.id]
    assert len(await p.workflows.list(status="running")) == 0


async def test_large_workflow_is_stored_whole(p: pulse.Pulse) -> None:
    async with p.workflow("many", timeout=PATIENCE) as flow:
        flow.add("last", after=[flow.add("part", number) for number in range(2_500)])
    assert (await flow.handle.status()).jobs == 2_501
    page = await p.workflows.jobs(parents_of=flow.handle.jobs["last"].id, unended=True)
    assert (len(page), page.workflow_id) == (500, flow.handle.id)


async def test_blocking_client_runs_a_workflow(server: ServerUnderTest, running: Running) -> None:
    worker = pulse.Pulse(server.address)

    @worker.job("double")
    async def double(ctx: pulse.Context, number: int = 0) -> int:
        return 2 * (number or sum([parent.result async for parent in ctx.parents]))

    def produce() -> None:
        with pulse.SyncPulse(server.address) as p:
            with p.workflow("doubles") as flow:
                first = flow.add("double", {"number": 2})
                second = flow.add("double", after=first)
            assert flow.handle.result(second, PATIENCE) == 8
            assert flow.handle.wait(PATIENCE).status == "succeeded"
            assert [job.name for job in p.workflows.iter_jobs(flow.handle.id)] == ["double", "double-2"]
            assert [each.id for each in p.workflows.iter(name="doubles")] == [flow.handle.id]

    async with worker, running(worker):
        await asyncio.to_thread(produce)


async def test_workflow_shows_what_a_suspended_job_waits_for(p: pulse.Pulse, running: Running) -> None:
    @p.job("nap")
    async def nap(ctx: pulse.Context) -> None:
        await ctx.sleep(timedelta(days=1))

    @p.job("approval")
    async def approval(ctx: pulse.Context) -> None:
        await ctx.wait_for("approved")

    async with p.workflow("order") as flow:
        flow.add(nap)
        flow.add(approval)

    async def waits() -> list[tuple[str | None, str | None]]:
        return [(job.status, job.waits_for) for job in await p.workflows.jobs(flow.handle.id)]

    assert await waits() == [("PENDING", None), ("PENDING", None)]

    async def are_suspended() -> bool:
        return await waits() == [("RETRYING", ""), ("RETRYING", "approved")]

    async with running(p):
        await eventually(are_suspended)
