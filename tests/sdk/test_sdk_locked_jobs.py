"""A job whose row is locked, as pulsed answers: the worker keeps it, and no other job waits for it."""

from __future__ import annotations

import asyncio

import grpc

import pulse
from pulse import tuning
from tests.eventually import eventually
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed

LOCKED = (grpc.StatusCode.UNAVAILABLE, "The job is locked by another session of the database. Try again.")


async def test_job_whose_beats_are_unknown_is_kept_past_its_lease_and_beaten_again_soon(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    fake.lease_seconds, fake.heartbeat_seconds = 0.6, 0.2
    go, outcomes = asyncio.Event(), []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        await go.wait()
        outcomes.append((ctx.job_id, ctx.cancelled))

    fake.locked = {"locked"}
    async with running(p):
        fake.deliver("locked", "free")
        # Far more beats than a lease has room for.
        await fake.until_async(lambda: fake.beats.count(("locked", 1)) >= 15)
        fake.locked = set()
        go.set()
        await fake.until_async(lambda: {"locked", "free"} <= set(fake.results))
    assert sorted(outcomes) == [("free", False), ("locked", False)]


async def test_job_that_is_unknown_at_its_confirmation_starts_once_it_is_confirmed_or_is_released(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    """Several of them, more than confirmations are under way at a time: those that are free start."""
    ran: list[str] = []

    @p.job("work")
    async def handle(ctx: pulse.Context) -> None:
        ran.append(ctx.job_id)

    fake.locked = {"locked-1", "locked-2", "locked-3"}
    async with running(p):
        for locked in sorted(fake.locked):
            fake.deliver(locked, confirm=True)
            await fake.until_async(lambda locked=locked: (locked, 1) in fake.beats)
        fake.deliver("free", confirm=True)
        await fake.until_async(lambda: "free" in fake.results)
        assert ran == ["free"]
        fake.locked = set()
        await fake.until_async(lambda: len(fake.results) + len(fake.released) == 4)
    assert sorted(ran + fake.released) == ["free", "locked-1", "locked-2", "locked-3"]


async def test_result_of_a_locked_job_is_offered_again_and_no_other_result_waits_for_it(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def handle() -> None:
        pass

    fake.refused_results["locked"] = LOCKED
    async with running(p):
        fake.deliver("locked")
        await fake.until_async(lambda: fake.result_count >= 1)
        for number in range(5):
            fake.deliver(f"free-{number}")
            await fake.until_async(lambda number=number: f"free-{number}" in fake.results)
        del fake.refused_results["locked"]
        await eventually(lambda: "locked" in fake.results, "it is offered again")


async def test_worker_that_stops_offers_the_result_of_a_locked_job_once_more(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    @p.job("work")
    async def handle() -> None:
        pass

    fake.refused_results["locked"] = LOCKED
    async with running(p):
        fake.deliver("locked")
        await fake.until_async(lambda: fake.result_count >= 1)
        fake.refused_results.clear()
    assert "locked" in fake.results


async def test_job_that_arrives_after_its_lease_is_not_given_up_while_it_is_confirmed(
    fake: FakePulsed, p: pulse.Pulse, running: Running
) -> None:
    """Its claim waited for a lock, and the server may have taken the confirmation already."""
    fake.lease_seconds, fake.heartbeat_seconds = 1.0, 0.3

    @p.job("work")
    async def handle() -> None:
        pass

    fake.beats_may_answer.clear()
    async with running(p):
        fake.deliver("late", confirm=True, age_seconds=2 * fake.lease_seconds)
        await fake.until_async(lambda: ("late", 1) in fake.beats)
        await asyncio.sleep(2 * tuning.HOLD_LOOK_SECONDS)  # for the thread to look several times
        fake.beats_may_answer.set()
        # Released if this took so long that it may run elsewhere.
        await fake.until_async(lambda: "late" in fake.results or "late" in fake.released)
