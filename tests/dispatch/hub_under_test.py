"""A hub over claims that a test answers, and sessions to connect to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

from pulse_server.dispatch.claims import Reconciler
from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.service import Gate
from pulse_server.dispatch.workers import Backlog, Delivery, Session
from tests.dispatch.fake_claims import FakeClaims
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.dispatch import FakeSwitches, limit_topic
from tests.fakes.wakeups import FakeWakeupLine

SOON = timedelta(milliseconds=1)
NEVER = timedelta(hours=1)


def a_session(
    worker_id: str = "w1",
    *topics: str,
    capacity: int = 2,
    concurrency: int = 0,
    speaks_batches: bool = True,
    run_id: str = "",
) -> Session:
    return Session(
        worker_id,
        frozenset(topics or ("mail",)),
        capacity,
        speaks_batches=speaks_batches,
        run_id=run_id,
        backlog=Backlog(lambda: None),
        concurrency=concurrency,
    )


def a_hub(claims: FakeClaims, tick: timedelta = NEVER) -> Hub:
    return HubUnderTest(claims, tick).hub


class HubUnderTest:
    """A hub, its gate, and the switches behind it."""

    def __init__(self, claims: FakeClaims, tick: timedelta = NEVER) -> None:
        self.claims = claims
        self.switches = FakeSwitches()
        answering = cast(Any, claims)
        self.line = FakeWakeupLine()
        roster = Roster(timedelta(seconds=30), self.line)
        self.gate = Gate(cast(Any, self.switches), roster, answering, interval=NEVER)
        reconciler = Reconciler(answering, roster, interval=NEVER)
        self.line.listen(self.gate.heard)
        self.hub = Hub(roster, answering, reconciler, self.line, tick=tick)

    async def limit_topic(self, *topics: str, pool: str | None = None, ahead: bool = False) -> None:
        limit_topic(self.switches, *topics, pool=pool, ahead=ahead)
        await self.gate.refresh()


@contextmanager
def running(hub: Hub) -> Iterator[asyncio.Task[None]]:
    """Let the hub dispatch for the length of the block."""
    task = asyncio.create_task(hub.run())
    try:
        yield task
    finally:
        task.cancel()


async def next_delivery(deliveries: AsyncIterator[Delivery]) -> Delivery:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await anext(deliveries)


async def job_ids(deliveries: AsyncIterator[Delivery]) -> list[str]:
    return [job.id for job in (await next_delivery(deliveries)).jobs]
