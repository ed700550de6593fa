"""Limits in the SDK: declared with handlers, set by operators, shown, and lanes of jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import pulse
from pulse.worker.intake import declared_topic
from tests.eventually import eventually
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest

MINUTE = timedelta(minutes=1)
RATE = pulse.Rate(100, per=MINUTE)


@each_row(
    "options, sentence",
    [
        ({"running": 0}, "running is 0: it must be from 1 to 1,000,000"),
        ({"running": True}, "running is True: it must be a whole number"),
        ({"rate": 10}, "rate is 10: it must be such as pulse.Rate"),
        ({"per_lane": "2"}, "per_lane is '2': it must be a whole number"),
        ({"turns": 1}, "turns is 1: it must be True or False"),
        ({"pool": 3}, "pool is 3: it must be a name"),
        ({"pool": "gpu"}, "pool has neither running nor a rate to share"),
        ({"aging": 60}, r"aging has to be a timedelta: write timedelta\(seconds=60\)"),
        ({"aging": timedelta(days=400)}, "aging is 400d: it must be above zero and at most 365 days"),
        ({"ordered": True, "per_lane": 2}, "ordered needs one job of a lane at a time, and per_lane is 2"),
        ({"limits": 2}, "A handler has no option 'limits'.*running, rate, pool"),
        ({"keep_completed": MINUTE}, "A handler has no option 'keep_completed'"),
    ],
)
def test_wrong_limit_is_refused_where_the_handler_is_written(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        pulse.Router().job("mail", **options)


@each_row(
    "make, sentence",
    [
        (lambda: pulse.Rate(0, per=MINUTE), "has 0 starts: they must be from 1 to 1,000,000"),
        (lambda: pulse.Rate(True, per=MINUTE), "has True starts"),
        (lambda: pulse.Rate(1, per=60), "has a period of 60: it must be a duration"),  # type: ignore[arg-type]
        (lambda: pulse.Rate(1, per=timedelta(milliseconds=1)), "from 100 milliseconds to 31 days"),
        (lambda: pulse.Rate(1, per=timedelta(days=32)), "from 100 milliseconds to 31 days"),
    ],
)
def test_absurd_number_is_refused_where_it_is_written(make: Any, sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        make()


def test_declaration_has_every_limit_of_a_handler() -> None:
    p = pulse.Pulse("localhost:1")
    p.register(
        "mail",
        lambda: None,
        running=10,
        rate=RATE,
        pool="gpu",
        per_lane=2,
        lane_rate=pulse.Rate(3, per=timedelta(seconds=1)),
        turns=True,
        ordered=False,
        aging=timedelta(minutes=5),
    )
    handler = p._registry.get("mail")
    assert handler is not None
    limits = declared_topic(handler).entries
    assert (limits.running, limits.rate.starts, limits.rate.period.seconds, limits.pool) == (
        10,
        100,
        60,
        "gpu",
    )
    assert (limits.per_lane, limits.lane_rate.starts, limits.turns, limits.aging.seconds) == (2, 3, True, 300)
    assert not limits.HasField("ordered")


async def test_limit_of_a_handler_is_in_force_before_its_first_job_starts(server: ServerUnderTest) -> None:
    seen: list[Mapping[str, Any]] = []
    async with pulse.Pulse(server.address) as p:

        @p.job("mail", running=1)
        async def mail() -> None:
            seen.extend(known.in_force for known in await p.limits())

        await p.enqueue("mail")
        running = asyncio.create_task(p.run(handle_signals=False))
        await eventually(lambda: bool(seen))
        running.cancel()
        await asyncio.wait({running})
    assert seen == [{"running": 1}]


async def test_operator_sets_limits_and_hands_them_back(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        settings = await p.set_topic("mail", running=5, rate=RATE)
        assert settings.operator == {"running": 5, "rate": RATE}
        assert (settings.declared, settings.differing, settings.pending) == ({}, (), "")
        assert (settings.decided_by["running"], settings.decided_by["rate"]) == ("operator", "operator")
        (known,) = await p.limits()
        assert (known.topic, known.in_force, known.running) == ("mail", settings.operator, 0)

        await p.set_topic("mail", running="default")
        (known,) = await p.limits(names=["mail"])
        assert known.in_force == {"rate": RATE}
        await p.reset_topic("mail", "rate")
        assert await p.limits() == []


async def test_topic_is_held_by_a_client_and_let_go(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        await p.set_topic("mail", running=5)
        await p.hold("mail", MINUTE)
        (known,) = await p.limits()
        assert known.held_until is not None
        await p.hold("mail", timedelta(0))
        await p.hold("mail", datetime.now(UTC) + timedelta(hours=1))
        (known,) = await p.limits()
        assert known.held_until is not None
        assert known.held_until > datetime.now(UTC) + timedelta(minutes=50)


@pytest.mark.parametrize("is_async", [True, False])
async def test_handler_holds_its_topic(server: ServerUnderTest, is_async: bool) -> None:
    held: list[pulse.Context] = []
    async with pulse.Pulse(server.address) as p:
        await p.set_topic("mail", running=5)

        if is_async:

            @p.job("mail")
            async def hold_async(ctx: pulse.Context) -> None:
                await ctx.hold(MINUTE)
                held.append(ctx)
        else:

            @p.job("mail")
            def hold_blocking(ctx: pulse.Context) -> None:
                ctx.hold(MINUTE)
                held.append(ctx)

        await p.enqueue("mail")
        running = asyncio.create_task(p.run(handle_signals=False))
        await eventually(lambda: bool(held))
        (known,) = await p.limits()
        assert known.held_until is not None
        running.cancel()
        await asyncio.wait({running})


async def test_handler_of_a_topic_with_limits_has_the_lane_of_its_job(server: ServerUnderTest) -> None:
    lanes: list[str | None] = []
    async with pulse.Pulse(server.address) as p:

        @p.job("mail", per_lane=1)
        async def mail(ctx: pulse.Context) -> None:
            lanes.append(ctx.lane)

        await p.enqueue("mail", lane="customer-42")
        await p.enqueue("mail")
        running = asyncio.create_task(p.run(handle_signals=False))
        await eventually(lambda: len(lanes) == 2)
        running.cancel()
        await asyncio.wait({running})
    assert set(lanes) == {"customer-42", None}


async def test_hold_in_a_unit_test_does_nothing() -> None:
    context = pulse.Context(lane="customer-42")
    assert context.lane == "customer-42"
    await context.hold(MINUTE)


async def test_jobs_keep_their_lane(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        one = await p.enqueue("mail", lane="customer-42")
        two, three = await p.enqueue_many("mail", [{}, pulse.JobItem({}, lane="b")], lane="a")
        lanes = [(await p.get_job(handle.id)).lane for handle in (one, two, three)]
        assert lanes == ["customer-42", "a", "b"]
        assert (await p.get_job((await p.enqueue("mail")).id)).lane is None
        with pytest.raises(pulse.InvalidArgument, match="lane has"):
            await p.enqueue("mail", lane="x" * 300)
        with pytest.raises(pulse.InvalidArgument, match="lane has to be"):
            await p.enqueue("mail", lane=42)  # type: ignore[arg-type]


async def test_lanes_are_listed_with_their_own_limits(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        await p.set_topic("mail", per_lane=2)
        await p.set_lane("mail", "customer-42", weight=3, limit=5)
        (lane,) = await p.lanes("mail")
        assert (lane.lane, lane.weight, lane.limit, lane.waiting) == ("customer-42", 3, 5, 0)
        assert await p.lanes("mail", by="share") == [lane]
        with pytest.raises(pulse.InvalidArgument, match='"wait" or "share"'):
            await p.lanes("mail", by="age")  # type: ignore[arg-type]


async def test_absurd_weights_and_holds_and_no_limit_are_refused_before_a_call() -> None:
    async with pulse.Pulse("127.0.0.1:1") as p:
        for weight in (0, 1001, True, "3", 1.5):
            with pytest.raises(
                pulse.InvalidArgument, match="weight has to be a whole number from 1 to 1,000"
            ):
                await p.set_lane("mail", "a", weight=weight)  # type: ignore[arg-type]
        with pytest.raises(pulse.InvalidArgument, match="A hold may last 365 days at the most"):
            await p.hold("mail", timedelta.max)
        with pytest.raises(pulse.InvalidArgument, match="A hold cannot last -1 day"):
            await p.hold("mail", timedelta(days=-1))
        with pytest.raises(pulse.InvalidArgument, match="Give a setting, such as running=5"):
            await p.set_topic("mail")


async def test_blocking_client_has_the_same(server: ServerUnderTest) -> None:
    with pulse.SyncPulse(server.address) as p:
        await asyncio.to_thread(p.set_topic, "mail", running=3)
        await asyncio.to_thread(p.hold, "mail", MINUTE)
        (known,) = await asyncio.to_thread(p.limits)
        assert known.in_force["running"] == 3
        assert known.held_until is not None
