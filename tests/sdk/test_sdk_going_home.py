"""A worker of several servers that wants to go home keeps its slots if its home is away again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import pulse
from pulse import tuning
from pulse.wire.servers import Servers
from pulse.worker.intake import Capacity
from tests.eventually import eventually
from tests.sdk.fake_pulsed import FakePulsed


@pytest.mark.parametrize("is_answered", [True, False])
async def test_worker_that_does_not_reach_its_home_again_gets_its_slots_back(
    fake: FakePulsed, monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    monkeypatch.setattr(tuning, "HOME_FIRST_SECONDS", 0.05)
    can_be_reached = iter([True])  # once: before the stream is emptied
    monkeypatch.setattr(Servers, "may_go_home", lambda _: next(can_be_reached, False))
    send = Capacity.send

    async def without_answer(capacity: Capacity, size: int) -> None:
        before = capacity._window._announced
        await send(capacity, size)
        if size == 1:
            capacity._window._announced = before

    if not is_answered:
        monkeypatch.setattr(Capacity, "send", without_answer)
    p: Any = pulse.Pulse(f"{fake.address},127.0.0.1:1")

    @p.job("work")
    async def work() -> None: ...

    worker = asyncio.create_task(p.run(concurrency=4, handle_signals=False))
    await eventually(lambda: 1 in fake.capacities, "the worker empties its stream")
    await eventually(lambda: fake.capacities[-1] == 4, "the server has its slots again")
    worker.cancel()
    await asyncio.wait({worker})
    await p.close()
