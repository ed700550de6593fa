"""A hub over claims that a test answers, and sessions to connect to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.sessions import Parcel, Session
from tests.dispatch.fake_claims import FakeClaims
from tests.fakes.dispatch import an_open_gate

SOON = timedelta(milliseconds=1)
NEVER = timedelta(hours=1)


def a_session(worker_id: str = "w1", *topics: str, capacity: int = 2, speaks_batches: bool = True) -> Session:
    return Session(worker_id, frozenset(topics or ("mail",)), capacity, speaks_batches=speaks_batches)


def a_hub(claims: FakeClaims, tick: timedelta = NEVER) -> Hub:
    return Hub(cast(Any, claims), an_open_gate(), tick=tick, lease_ttl=timedelta(seconds=30))


@contextmanager
def running(hub: Hub) -> Iterator[asyncio.Task[None]]:
    """Let the hub dispatch for the length of the block."""
    task = asyncio.create_task(hub.run())
    try:
        yield task
    finally:
        task.cancel()


async def next_parcel(parcels: AsyncIterator[Parcel]) -> Parcel:
    async with asyncio.timeout(5):
        return await anext(parcels)


async def job_ids(parcels: AsyncIterator[Parcel]) -> list[str]:
    return [job.id for job in (await next_parcel(parcels)).jobs]
