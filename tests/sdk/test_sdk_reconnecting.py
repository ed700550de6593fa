"""A worker that loses its server, is refused by it, or stops."""

from __future__ import annotations

import asyncio
import logging

import grpc
import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


async def test_worker_comes_back_after_a_restart_with_what_it_holds(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pulse.worker")
    go = asyncio.Event()
    runs = 0

    @p.job("work")
    async def handle() -> None:
        nonlocal runs
        runs += 1
        await go.wait()

    async with running(p):
        fake.deliver("j1")
        await eventually(lambda: runs == 1)
        await asyncio.to_thread(fake.stop)
        go.set()  # finishes while no server is there to take it
        await asyncio.to_thread(fake.start)
        await fake.until_async(lambda: len(fake.opened) == 2 and "j1" in fake.results)
        fake.deliver("j2")
        await fake.until_async(lambda: "j2" in fake.results)
    assert runs == 2
    assert fake.opened[0].worker_id == fake.opened[1].worker_id
    assert (fake.opened[0].capacity, fake.opened[0].concurrency) == (2, 2)
    logged = [
        record.message.split(" pulsed at")[0]
        for record in caplog.records
        if "connect" in record.message.lower()
    ]
    assert logged == ["Connected to", "Lost the connection to", "Connected to"]
    assert not any(record.exc_info for record in caplog.records)


async def test_reconnecting_worker_sends_the_jobs_it_still_runs(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    go = asyncio.Event()

    @p.job("work")
    async def handle() -> None:
        await go.wait()

    async with running(p):
        fake.deliver("j1", attempt=2)
        fake.send(pb.StreamJobsResponse(draining=True))
        await fake.until_async(lambda: len(fake.opened) == 2)
        go.set()
    assert list(fake.opened[1].held) == [pb.Claim(job_id="j1", attempt=2, run=2)]
    assert fake.results["j1"].success


async def test_refused_report_is_logged_once_and_dropped(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    @p.job("work")
    async def handle() -> None:
        pass

    fake.refused_results["j1"] = (grpc.StatusCode.FAILED_PRECONDITION, "The lease was lost.")
    fake.refused_results["later"] = (grpc.StatusCode.UNAVAILABLE, "The database is away.")
    async with running(p):
        fake.deliver("j1", "later")
        await fake.until_async(lambda: fake.result_count >= 3)
        del fake.refused_results["later"]
        await fake.until_async(lambda: "later" in fake.results)
    assert caplog.text.count("was refused: The lease was lost.") == 1


async def test_draining_hands_back_the_unstarted_and_finishes_the_running(
    fake: FakePulsed, p: pulse.Pulse
) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @p.job("work")
    async def handle() -> None:
        started.set()
        await go.wait()

    task = asyncio.create_task(p.run(handle_signals=False))
    fake.deliver("j1", "j2", "j3", "j4")
    await started.wait()
    task.cancel()
    await fake.until_async(lambda: len(fake.released) == 2)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(fake.released) == ["j3", "j4"]
    assert set(fake.results) == {"j1", "j2"}
    assert fake.capacities[-1] == 1


async def test_second_cancellation_gives_back_what_still_runs(fake: FakePulsed, p: pulse.Pulse) -> None:
    started = asyncio.Event()

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(p.run(handle_signals=False))
    fake.deliver("j1")
    await started.wait()
    task.cancel()
    await fake.until_async(lambda: fake.capacities)  # it drains
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fake.released == ["j1"]
    assert fake.results == {}


async def test_server_that_refuses_the_worker_ends_run(fake: FakePulsed, p: pulse.Pulse) -> None:
    p.register("work", _nothing)
    fake.stream_refusal = (grpc.StatusCode.UNAUTHENTICATED, "Who are you?")
    with pytest.raises(pulse.Unauthenticated, match="Who are you"):
        await p.run(handle_signals=False)


async def _nothing() -> None: ...
