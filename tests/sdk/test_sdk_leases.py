"""A worker defends what it holds, and lets go of what is not its own any more."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed, wait_for


async def test_second_delivery_of_a_held_attempt_is_ignored(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    runs = 0
    go = asyncio.Event()

    @p.job("work")
    async def handle() -> None:
        nonlocal runs
        runs += 1
        await go.wait()

    async with running(p):
        fake.deliver("j1")
        fake.deliver("j1", "j2")
        await eventually(lambda: runs == 2)
        go.set()
        await fake.until_async(lambda: len(fake.results) == 2)
    assert runs == 2


async def test_job_to_confirm_is_beaten_before_it_starts(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    beats_at_start: list[list[tuple[str, int]]] = []

    @p.job("work")
    async def handle() -> None:
        beats_at_start.append(list(fake.beats))

    fake.disowned = {"gone"}
    async with running(p):
        fake.deliver("j1", "gone", confirm=True)
        await fake.until_async(lambda: "j1" in fake.results)
    assert beats_at_start == [[("j1", 1), ("gone", 1)]]
    assert "gone" not in fake.results


async def test_delivery_that_lay_about_is_confirmed_before_it_starts(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    ran: list[str] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        ran.append(ctx.job_id)

    fake.disowned = {"reaped meanwhile"}
    async with running(p):
        fake.deliver("fresh")
        fake.deliver("late", "reaped meanwhile", age_seconds=fake.lease_seconds / 2)
        await fake.until_async(lambda: {"fresh", "late"} <= set(fake.results))
    assert set(fake.beats) == {("late", 1), ("reaped meanwhile", 1)}
    assert sorted(ran) == ["fresh", "late"]


async def test_stop_from_the_server_cancels_and_reports_nothing(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        if ctx.job_id == "after":
            return
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert ctx.cancelled
            stopped.set()

    async with running(p):
        fake.deliver("j1")
        await started.wait()
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="j1", attempt=7, run=7)]))  # not this attempt
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="j1", attempt=1, run=1)]))
        await stopped.wait()
        fake.deliver("after")
        await fake.until_async(lambda: "after" in fake.results)
    assert "j1" not in fake.results
    assert fake.released == []


async def test_blocked_event_loop_keeps_its_leases(running: Running) -> None:
    fake = FakePulsed(lease_seconds=1.0, heartbeat_seconds=0.1).start()
    async with pulse.Pulse(fake.address, concurrency=2) as p:

        @p.job("work")
        async def handle() -> None:
            fake.until(lambda: fake.beats.count(("j1", 1)) >= 3)  # blocks the loop, on purpose

        async with running(p):
            fake.deliver("j1")
            await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].success
    fake.stop()


async def test_stop_in_a_heartbeat_answer_reaches_a_sync_handler(running: Running) -> None:
    fake = FakePulsed(lease_seconds=1.0, heartbeat_seconds=0.1).start()
    raised = threading.Event()
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        def handle(ctx: pulse.Context) -> None:
            try:
                while True:
                    time.sleep(0.001)
            except pulse.Cancelled:
                assert ctx.cancelled
                with pytest.raises(pulse.Cancelled):
                    ctx.raise_if_cancelled()
                raised.set()

        async with running(p):
            fake.disowned = {"j1"}
            fake.deliver("j1")
            await asyncio.to_thread(wait_for, raised)
    assert fake.results == {}
    fake.stop()


async def test_lease_that_cannot_be_defended_is_given_up(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakePulsed(lease_seconds=1.0, heartbeat_seconds=0.1).start()
    canceled = asyncio.Event()
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def handle() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                canceled.set()

        async with running(p):
            fake.beats_fail = True
            fake.deliver("j1")
            await asyncio.wait_for(canceled.wait(), PATIENCE_SECONDS)
    assert fake.results == {}
    assert "1 jobs are given up" in caplog.text
    fake.stop()


def block_until_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """Block the event loop until the heartbeats have given up its job."""
    while "1 jobs are given up" not in caplog.text:
        time.sleep(0.001)


async def test_result_of_a_handler_that_blocked_the_event_loop_past_its_lease_is_kept(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """The heartbeats gave the job up before the handler ended. Whether the claim holds is for the server."""
    fake = FakePulsed(lease_seconds=1.0, heartbeat_seconds=0.1).start()
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def handle() -> None:
            fake.stop()
            block_until_given_up(caplog)

        async with running(p):
            fake.deliver("j1")
            await eventually(lambda: "Results cannot be reported" in caplog.text)
            fake.start()
            await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].success
    fake.stop()


async def test_job_that_a_heartbeat_saved_while_the_event_loop_was_blocked_goes_on(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakePulsed(lease_seconds=1.0, heartbeat_seconds=0.1).start()
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def handle() -> None:
            fake.beats_fail = True
            block_until_given_up(caplog)
            fake.beats_fail = False
            seen = len(fake.beats)
            fake.until(lambda: len(fake.beats) >= seen + 2)  # the answer to one of them has arrived
            await asyncio.sleep(0)

        async with running(p):
            fake.deliver("j1")
            await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].success
    fake.stop()


async def test_jobs_are_kept_while_pulsed_reports_that_its_database_does_not_answer(running: Running) -> None:
    """What runs goes on, what is done is reported, what waits is released once the database answers."""
    fake = FakePulsed(lease_seconds=1.0, heartbeat_seconds=0.1).start()
    go = asyncio.Event()
    runs = []
    async with pulse.Pulse(fake.address, concurrency=1) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            runs.append(ctx.job_id)
            await go.wait()

        async with running(p):
            fake.deliver("runs")
            await eventually(lambda: runs == ["runs"])
            fake.says_its_database_is_away = True
            fake.deliver("waits")  # now: a part of its lease later it would be released
            seen = len(fake.beats)
            # It is beaten every 50 ms while that fails: so for several leases.
            await fake.until_async(lambda: len(fake.beats) >= seen + 40)
            go.set()
            await fake.until_async(lambda: fake.result_count >= 3)
            assert fake.released == []
            fake.says_its_database_is_away = False
            await fake.until_async(lambda: fake.results and fake.released)
    assert (runs, list(fake.results), fake.released) == (["runs"], ["runs"], ["waits"])
    fake.stop()
