"""Hooks learn what became of jobs that did not succeed: retried, failed for good, or canceled."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

import pulse
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.transport.pulse_server_under_test import ServerUnderTest

LATER = timedelta(hours=1)


@pytest.fixture
async def p(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as client:
        yield client


async def test_hook_learns_of_a_retry_and_of_the_failure_for_good(p: pulse.Pulse, running: Running) -> None:
    verdicts: list[pulse.Verdict] = []

    @p.on_verdict
    async def learn(verdict: pulse.Verdict) -> None:
        verdicts.append(verdict)

    @p.job("charge")
    async def charge(again: bool) -> None:
        if again:
            raise pulse.Retry(after=LATER, reason="the bank is closed")
        raise ValueError("no card")

    @p.job("fine")
    async def fine() -> None: ...

    retried = await charge.enqueue(again=True)
    failed = await p.enqueue("charge", {"again": False}, max_attempts=1)
    completed = await fine.enqueue()
    async with running(p):
        await completed.wait()
        await eventually(lambda: len(verdicts) == 2)
    by_id = {verdict.job.id: verdict for verdict in verdicts}
    of_retried, of_failed = by_id[retried.id], by_id[failed.id]
    stored = await p.get_job(retried.id)
    assert (of_retried.status, of_retried.next_run_at) == (pulse.JobStatus.RETRYING, stored.next_run_at)
    assert (of_failed.status, of_failed.next_run_at) == (pulse.JobStatus.DEAD_LETTERED, None)
    assert of_failed.attempt is not None
    assert (of_failed.attempt.outcome, of_failed.job.error_class) == ("failed", "builtins.ValueError")


async def test_hook_learns_that_a_running_job_was_canceled(p: pulse.Pulse, running: Running) -> None:
    verdicts: list[pulse.Verdict] = []
    begun = asyncio.Event()
    p.on_verdict(verdicts.append)

    @p.job("long")
    async def long() -> None:
        begun.set()
        await asyncio.sleep(600)

    handle = await long.enqueue()
    async with running(p):
        await begun.wait()
        await p.cancel(handle.id, reason="not needed")
        await eventually(lambda: len(verdicts) == 1)
    (verdict,) = verdicts
    assert (verdict.job.id, verdict.status) == (handle.id, pulse.JobStatus.CANCELED)
    assert verdict.attempt is not None


async def test_failing_hook_is_logged_and_a_plain_one_runs_in_a_thread(
    p: pulse.Pulse, running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    threads: list[threading.Thread] = []

    @p.on_verdict
    async def broken(_verdict: pulse.Verdict) -> None:
        raise RuntimeError("no pager")

    @p.on_verdict
    def plain(_verdict: pulse.Verdict) -> None:
        threads.append(threading.current_thread())

    @p.job("charge", max_attempts=1)
    async def charge() -> None:
        raise pulse.Discard("no card")

    with caplog.at_level(logging.ERROR, "pulse.worker"):
        handle = await charge.enqueue()
        async with running(p):
            await eventually(lambda: bool(threads))
    assert threads[0] is not threading.main_thread()
    assert f"A hook for verdicts failed on job {handle.id} (charge): RuntimeError: no pager" in caplog.text
    assert (await p.get_job(handle.id)).status is pulse.JobStatus.DEAD_LETTERED


async def test_worker_that_stops_passes_on_the_last_verdict(p: pulse.Pulse, running: Running) -> None:
    verdicts: list[pulse.Verdict] = []
    begun, go = asyncio.Event(), asyncio.Event()
    p.on_verdict(verdicts.append)

    @p.job("charge", max_attempts=1)
    async def charge() -> None:
        begun.set()
        await go.wait()
        raise ValueError("no card")

    await charge.enqueue()
    async with running(p) as run:
        await begun.wait()
        run.cancel()  # drains
        go.set()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        assert len(verdicts) == 1


@pytest.mark.parametrize("wrong", [None, lambda: None, 7])
def test_hook_that_cannot_be_called_is_refused(wrong: object) -> None:
    with pytest.raises(pulse.InvalidArgument, match="function of \\(verdict\\)"):
        pulse.Pulse().on_verdict(wrong)  # type: ignore[type-var]


async def test_verdicts_are_followed_from_now_on(p: pulse.Pulse) -> None:
    now = datetime.now(UTC)
    async with contextlib.aclosing(p.follow_verdicts(since=now)) as following:
        assert await anext(following) == now


async def test_jobs_that_end_without_a_handler_are_followed(p: pulse.Pulse, server: ServerUnderTest) -> None:
    verdicts: list[pulse.Verdict] = []
    p.on_verdict(verdicts.append)
    since = datetime.now(UTC) - LATER
    canceled, crashed, reported = await p.enqueue_many("charge", [1, 2, 3])
    await p.cancel(canceled.id, reason="not needed")
    end_as = """UPDATE pulse.jobs SET status = 'DEAD_LETTERED', ended_as = 'DEAD_LETTERED', queued = false,
        attempts = 1, finished_at = clock_timestamp(), finished_by = 'w', last_error = $2,
        history = pulse.with_attempt_v1(NULL, 1, 1, 'w', clock_timestamp(), $3, $2) WHERE id = $1"""
    await server.table.connection.execute(end_as, crashed.id, "worker lease expired", "lease_expired")
    await server.table.connection.execute(end_as, reported.id, "ValueError: no card", "failed")
    # An export leaves out the last seconds.
    await server.table.connection.execute(
        "UPDATE pulse.jobs SET finished_at = finished_at - interval '1 minute', "
        "submitted_at = submitted_at - interval '1 minute'"
    )

    following = p.follow_verdicts(since=since, interval=timedelta(milliseconds=50))
    async with contextlib.aclosing(following):
        first = await anext(following)
        assert {(one.job.id, one.status) for one in verdicts} == {
            (canceled.id, pulse.JobStatus.CANCELED),
            (crashed.id, pulse.JobStatus.DEAD_LETTERED),
        }
        assert first > since
        await anext(following)
        assert len(verdicts) == 2
