"""A cancellation reaches handlers in threads, and a limit one that blocks the event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

import pulse
from pulse import tuning
from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed
from tests.sdk.scripts import start_script


async def test_canceled_job_is_stopped_in_its_thread(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    begun, raised = threading.Event(), threading.Event()

    @p.job("work")
    def handle() -> None:
        begun.set()
        try:
            while True:
                time.sleep(0.001)
        except pulse.Cancelled:
            raised.set()
            raise

    async with running(p):
        fake.deliver("j1")
        assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="j1", attempt=1, run=1)]))
        assert await asyncio.to_thread(raised.wait, PATIENCE_SECONDS)
    assert fake.results == {}


@pytest.mark.parametrize("is_async", [True, False])
async def test_error_in_the_cleanup_of_a_canceled_job_is_logged(
    fake: FakePulsed, p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    begun = threading.Event()

    async def handle_in_loop() -> None:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE_SECONDS)
        except asyncio.CancelledError:
            raise RuntimeError("cleanup failed") from None

    def handle_in_thread() -> None:
        begun.set()
        try:
            while True:
                time.sleep(0.001)
        except pulse.Cancelled:
            raise RuntimeError("cleanup failed") from None

    p.register("work", handle_in_loop if is_async else handle_in_thread)
    async with running(p):
        fake.deliver("j1")
        assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="j1", attempt=1, run=1)]))
        await eventually(lambda: "cleanup failed" in caplog.text, "it is logged")
    (record,) = [record for record in caplog.records if "cleanup failed" in record.getMessage()]
    assert record.getMessage() == (
        "Job j1 (work) was stopped, and its handler failed then, which no server stores: "
        "RuntimeError: cleanup failed"
    )
    assert record.levelname == "WARNING"
    assert record.exc_info
    assert fake.results == {}


async def test_job_that_has_ended_costs_no_slot_when_its_claim_is_lost_before_its_result_is_stored(
    fake: FakePulsed,
    p: pulse.Pulse,
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tuning, "TIME_LIMIT_GRACE_SECONDS", 0.05)

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        # A timer that is later than that of a slot which is given up.
        await asyncio.sleep(10 * tuning.TIME_LIMIT_GRACE_SECONDS if ctx.job_id == "next" else 0)

    async with running(p):
        fake.says_its_database_is_away = True
        fake.deliver("j1")
        await fake.until_async(lambda: fake.result_count)
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="j1", attempt=1, run=1)]))
        fake.deliver("next")
        fake.says_its_database_is_away = False
        await fake.until_async(lambda: "next" in fake.results)
    assert "its slot is lost" not in caplog.text


async def test_canceled_thread_that_goes_on_costs_its_slot(
    fake: FakePulsed, p: pulse.Pulse, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "TIME_LIMIT_GRACE_SECONDS", 0.05)
    begun, go = threading.Event(), threading.Event()

    @p.job("work")
    def handle() -> None:
        begun.set()
        while not go.is_set():
            try:
                go.wait()
            except pulse.Cancelled:
                continue

    @p.job("other")
    async def other() -> None: ...

    p._worker_settings = pulse.worker.worker.WorkerSettings(2, 5.0, None, lost_slots_exit=2)
    async with running(p):
        fake.deliver("j1")
        assert await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="j1", attempt=1, run=1)]))
        await fake.until_async(lambda: 1 in fake.capacities)
        go.set()
        await fake.until_async(lambda: fake.capacities[-1] >= 2)
    assert fake.results == {}


def test_drain_interrupts_a_thread_that_computes_and_releases_its_job(fake: FakePulsed) -> None:
    worker = start_script(
        """
        import sys
        from datetime import timedelta
        import pulse

        p = pulse.SyncPulse(sys.argv[1], drain_timeout=timedelta(milliseconds=1))

        @p.job("work")
        def handle() -> None:
            p.enqueue("started")
            while True:
                pass

        p.run()
        print("returned")
        """,
        fake.address,
    )
    fake.deliver("j1")
    fake.until(lambda: fake.stored)
    worker.send_signal(signal.SIGTERM)
    assert worker.communicate(timeout=20) == ("returned\n", "")
    assert (fake.released, fake.results) == (["j1"], {})


BLOCKED = """
    import asyncio, ctypes, logging, sys, time
    from datetime import timedelta
    import pulse
    from pulse import tuning

    logging.basicConfig()
    tuning.TIME_LIMIT_GRACE_SECONDS = tuning.BLOCKED_LOOP_SECONDS = 0.3
    p = pulse.Pulse(sys.argv[1])

    @p.job("compute", timeout=timedelta(milliseconds=100))
    async def compute(wait: bool = False) -> None:
        if wait:
            await asyncio.sleep(0)
        while True:
            pass

    @p.job("c", timeout=timedelta(milliseconds=100))
    async def stuck_in_c() -> None:
        ctypes.CDLL(None).sleep(3600)

    @p.job("next")
    async def next() -> None: ...

    @p.job("clean-up")
    async def stuck_in_clean_up() -> None:
        print("begun", flush=True)
        try:
            await asyncio.sleep(3600)
        finally:
            ctypes.CDLL(None).sleep(3600)

    asyncio.run(p.run(drain_timeout=timedelta(milliseconds=100)))
"""


@pytest.mark.parametrize("payload", [b"", b'{"wait":true}'])
def test_handler_that_computes_in_the_event_loop_is_ended_at_its_limit(
    fake: FakePulsed, payload: bytes
) -> None:
    worker = start_script(BLOCKED, fake.address)
    fake.deliver("j1", topic="compute", payload=payload)
    fake.until(lambda: "j1" in fake.results)
    fake.deliver("j2", topic="next")
    fake.until(lambda: "j2" in fake.results)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=20)
    assert worker.returncode == 0
    assert fake.results["j1"].timed_out
    assert fake.results["j2"].success


def test_event_loop_that_is_blocked_for_good_is_reported_and_ends_the_process(fake: FakePulsed) -> None:
    worker = start_script(BLOCKED, fake.address)
    fake.deliver("j1", topic="c")
    _, complaints = worker.communicate(timeout=20)
    assert worker.returncode == 70
    assert "blocks the event loop and does not end" in complaints
    assert "in stuck_in_c" in complaints
    assert fake.results["j1"].timed_out


def test_handler_that_blocks_the_event_loop_when_its_worker_stops_has_not_succeeded(fake: FakePulsed) -> None:
    worker = start_script(BLOCKED, fake.address)
    fake.deliver("j1", topic="clean-up")
    assert worker.stdout is not None
    worker.stdout.readline()
    worker.send_signal(signal.SIGTERM)
    _, complaints = worker.communicate(timeout=20)
    assert worker.returncode == 70
    assert "in stuck_in_clean_up" in complaints
    assert fake.results == {}
