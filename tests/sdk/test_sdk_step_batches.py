"""How the steps of handlers share calls, and what becomes of them at a server without room and at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import pulse
from pulse.handlers import step_calls
from pulse.handlers.step_calls import StepCalls
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.endpoint import make_endpoint
from tests.sdk.conftest import Running
from tests.sdk.fake_pulsed import FakePulsed


@asynccontextmanager
async def connected(fake: FakePulsed) -> AsyncIterator[StepCalls]:
    connection = Connection(make_endpoint(fake.address, None, None))
    calls = StepCalls(lambda: connection, asyncio.get_running_loop(), "w1")
    try:
        yield calls
    finally:
        await calls.close()
        await connection.close()


async def test_steps_that_end_while_a_call_is_in_flight_share_the_next(fake: FakePulsed) -> None:
    fake.steps_may_answer.clear()
    async with connected(fake) as calls:

        def storing(name: str) -> asyncio.Task[pb.StepView | None]:
            return asyncio.create_task(calls.store_step(pb.NewStep(name=name)))

        first = [storing("a")]
        await fake.until_async(lambda: len(fake.step_calls) == 1)
        first.append(storing("b"))
        await fake.until_async(lambda: len(fake.step_calls) == 2)
        later = [storing(str(number)) for number in range(50)]
        await asyncio.sleep(0)
        fake.steps_may_answer.set()
        assert await asyncio.gather(*first, *later) == [None] * 52
    assert fake.step_calls == [["a"], ["b"], [str(number) for number in range(50)]]


async def test_step_is_sent_again_while_the_server_has_no_room(
    fake: FakePulsed, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_calls, "AGAIN_SECONDS", 0.01)
    fake.step_calls_without_room = 2
    async with pulse.Pulse(fake.address) as p:

        @p.job("work")
        async def handle(ctx: pulse.Context) -> None:
            await ctx.step("fetch", int)

        async with running(p):
            fake.deliver("j1")
            await fake.until_async(lambda: "j1" in fake.results)
    assert fake.results["j1"].success
    assert fake.steps["j1", "fetch"].value == b"0"


async def test_worker_that_stops_fails_the_steps_that_wait_for_an_answer(fake: FakePulsed) -> None:
    fake.steps_may_answer.clear()
    async with connected(fake) as calls:
        storing = [asyncio.create_task(calls.store_step(pb.NewStep(name="a")))]
        await fake.until_async(lambda: fake.step_calls)
    with pytest.raises(pulse.ClientClosed):
        await storing[0]
    fake.steps_may_answer.set()
