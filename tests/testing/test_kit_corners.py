"""Uses of the kit that once went wrong: closed clients, other ways out, and jobs that cannot run."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest

import pulse
import pulse.outbox
from pulse.testing import Kit, server
from tests.testing import shop

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


def test_client_that_a_test_closed_is_open_in_handlers_and_later_tests() -> None:
    p, s = pulse.Pulse(), pulse.SyncPulse()

    @p.job("closing")
    async def enqueue_another(left: int) -> None:
        if left:
            await enqueue_another.enqueue(left - 1)

    async def lifespan() -> None:
        async with p:
            await enqueue_another.enqueue(1)

    with Kit(p) as kit:
        asyncio.run(lifespan())
        with s:
            s.enqueue("closing", {"left": 0})
        assert kit.drain() == {"completed": 3}
    with Kit(p) as kit:
        asyncio.run(enqueue_another.enqueue(0))
        s.enqueue("closing", {"left": 0})
        assert kit.drain() == {"completed": 2}


def test_no_job_is_stored_through_a_connection() -> None:
    nowhere = object()
    with pytest.raises(pulse.ClientClosed, match="pulse_kit"):
        pulse.sql.enqueue(nowhere, shop.double, 1)
    workflow = shop.p.workflow("w")
    workflow.add(shop.double, 1)
    with Kit():
        for store in (
            lambda: pulse.sql.enqueue(nowhere, shop.double, 1),
            lambda: pulse.sql.enqueue_many(nowhere, shop.double, [{"n": 1}]),
            lambda: pulse.sql.enqueue_workflow(nowhere, workflow),
            lambda: pulse.outbox.enqueue(nowhere, shop.double, 1),
        ):
            with pytest.raises(pulse.ClientClosed, match=r"no database.*pulse_server"):
                store()


@pytest.mark.parametrize("catches", [False, True])
def test_no_job_is_completed_through_a_connection(catches: bool) -> None:
    p = pulse.Pulse()
    caught = pulse.ClientClosed if catches else ()

    @p.job("paying", max_attempts=1)
    async def paying(ctx: pulse.Context) -> None:
        with contextlib.suppress(caught):
            await ctx.complete(object())

    with Kit(p) as kit:
        ran = kit.run(asyncio.run(paying.enqueue()))
    assert ran.outcome == "dead_lettered"
    if not catches:
        assert isinstance(ran.error, pulse.ClientClosed)
        assert "pulse_server" in str(ran.error)


def test_process_that_a_test_starts_connects_nowhere() -> None:
    program = (
        "import pulse\n"
        "try: pulse.SyncPulse('127.0.0.1:9').enqueue('x')\n"
        "except pulse.ClientClosed: print('refused')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for kit in (None, Kit()):
        if kit is not None:
            kit.__enter__()
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, **os.environ},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if kit is not None:
            kit.__exit__(None, None, None)
        assert (ran.stdout.strip(), ran.returncode) == ("refused", 0), ran.stderr


def test_queued_occurrence_fires_when_the_job_before_it_has_ended() -> None:
    p = pulse.Pulse()
    starts: list[timedelta] = []

    with Kit(p) as kit:
        begin = kit.now

        @p.job("slow")
        async def slow(ctx: pulse.Context) -> None:
            await ctx.step("start", lambda: starts.append(kit.now - begin))
            await ctx.sleep(5 * SECOND)

        p.every("slow", 4 * SECOND, overlap="queue", name="slow")
        kit.advance(seconds=21, schedules=True, drain=True)
    gaps = [(later - earlier) // SECOND for earlier, later in itertools.pairwise(starts)]
    assert len(starts) >= 4
    assert set(gaps) == {5}, "as soon as the job before has ended"


def test_job_that_enqueues_itself_each_day_runs_on_the_last_day() -> None:
    p = pulse.SyncPulse()

    @p.job("daily")
    def daily(left: int) -> None:
        if left:
            daily.options(delay=timedelta(days=1)).enqueue(left - 1)

    with Kit(p) as kit:
        daily.enqueue(5)
        kit.advance(days=5, drain=True)
        assert [job.status for job in kit.jobs] == 6 * [pulse.JobStatus.COMPLETED]


async def test_time_that_the_application_computes_is_not_ahead_of_the_clock() -> None:
    p = pulse.Pulse()

    @p.job("later")
    async def later() -> None: ...

    async def workflow(at: datetime) -> None:
        async with p.workflow("w") as jobs:
            jobs.add(later.options(run_at=at))

    for enqueue in (
        lambda at: later.options(run_at=at).enqueue(),
        lambda at: p.enqueue_many("later", [pulse.JobItem({}, run_at=at)]),
        workflow,
        lambda at: p.schedule("later", {}, pulse.At(at)),
    ):
        now = datetime.now(UTC)
        clock = mock.Mock(now=lambda _: now)  # noqa: B023
        with mock.patch.object(server, "datetime", clock), Kit(p) as kit:
            waiting = await later.options(delay=3 * DAY).enqueue()
            now += HOUR  # the test takes its time, or patches the clock
            await enqueue(now + 2 * DAY)
            await kit.aadvance(2 * DAY, schedules=True)
            assert await kit.adrain() == {"completed": 1}
            assert kit.due_in(waiting) < DAY
            now += 9 * DAY
            await later.options(run_at=now).enqueue()
            assert kit.now < now, "only the test moves the clock that it has moved"


async def test_number_without_a_unit_is_refused() -> None:
    three: Any = 3
    with Kit() as kit:
        with pytest.raises(AssertionError, match=r"advance\(days=3\)"):
            kit.advance(three)
        with pytest.raises(AssertionError, match=r"advance\(days=3\)"):
            await kit.aadvance(three, drain=True)


def test_hook_learns_the_verdicts() -> None:
    p = pulse.Pulse()
    seen: list[tuple[str, int]] = []

    @p.job("failing", max_attempts=2)
    async def failing() -> None:
        raise ValueError("no")

    @p.on_verdict
    async def learn(verdict: pulse.Verdict) -> None:
        assert verdict.attempt is not None
        seen.append((verdict.status.value, verdict.attempt.attempt))

    with Kit(p) as kit:
        asyncio.run(failing.enqueue())
        kit.advance(minutes=1, drain=True, errors="keep")
    assert seen == [("RETRYING", 1), ("DEAD_LETTERED", 2)]


def test_job_that_cannot_run_stays_as_it_was() -> None:
    one, other = pulse.Pulse(), pulse.Pulse()
    for p in (one, other):

        @p.job("shared")
        async def shared() -> None: ...

    with Kit(one, other) as kit:
        job = asyncio.run(one.enqueue("shared"))
        with pytest.raises(AssertionError, match="use"):
            kit.drain()
        assert (kit.job(job).status, kit.job(job).attempts) == (pulse.JobStatus.PENDING, 0)
        kit.use(one)
        assert kit.drain() == {"completed": 1}


def test_job_whose_resource_does_not_open_stays_as_it_was() -> None:
    p = pulse.SyncPulse()
    is_broken = True

    @p.resource
    def database() -> Iterator[str]:
        if is_broken:
            raise OSError("away")
        yield "database"

    @p.job("needing")
    def needing(database: str = pulse.INJECTED) -> str:
        return database

    with Kit(p) as kit:
        job = needing.enqueue()
        with pytest.raises(Exception, match="away"):
            kit.drain()
        assert (kit.job(job).status, kit.job(job).attempts) == (pulse.JobStatus.PENDING, 0)
        is_broken = False
        kit.drain()
        assert kit.result(job) == "database"


def test_handler_that_cancels_its_own_job_is_canceled() -> None:
    p = pulse.Pulse()

    @p.job("canceling")
    async def canceling(ctx: pulse.Context) -> None:
        await p.cancel(ctx.job_id)
        await ctx.step("after", lambda: asyncio.sleep(0))

    with Kit(p) as kit:
        asyncio.run(canceling.enqueue())
        assert kit.drain(errors="keep") == {"canceled": 1}


def test_job_that_waits_for_others_is_not_run_before_them() -> None:
    p = pulse.Pulse()

    @p.job("part")
    async def part() -> None: ...

    async def start() -> None:
        async with p.workflow("w") as flow:
            flow.add(part, name="second", after=flow.add(part, name="first"))

    with Kit(p) as kit:
        asyncio.run(start())
        waiting = next(job for job in kit.jobs if kit.due_in(job) > timedelta(days=1))
        with pytest.raises(AssertionError, match="waits for other jobs"):
            kit.run(waiting)
        assert kit.drain() == {"completed": 2}
