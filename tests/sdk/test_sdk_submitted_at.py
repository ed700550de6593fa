"""A handle has the moment at which its job was stored, by the database's clock."""

from __future__ import annotations

import asyncio
import pickle
from datetime import datetime

import pulse
from tests.transport.pulse_server_under_test import ServerUnderTest


async def _stored_at(p: pulse.Pulse, handle: pulse.JobHandle) -> datetime | None:
    return (await p.get_job(handle.id)).submitted_at


async def test_handle_of_one_job_has_the_moment_that_is_stored(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        handle = await p.enqueue("mail", {"to": 1}, key="k")
        repeat = await p.enqueue("mail", {"to": 1}, key="k")
        unique = await p.enqueue("mail", {"to": 2}, unique=pulse.Unique(key="u"))
        skipped = await p.enqueue("mail", {"to": 3}, unique=pulse.Unique(key="u"))
        assert handle.submitted_at is not None
        assert handle.submitted_at == repeat.submitted_at == await _stored_at(p, handle)
        assert unique.submitted_at == skipped.submitted_at == await _stored_at(p, unique)
        assert p.handle(handle.id).submitted_at is None
        assert pickle.loads(pickle.dumps(handle)).submitted_at == handle.submitted_at


async def test_handles_of_a_bulk_share_the_moment_of_the_first_job(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as p:
        handles = await p.enqueue_many("mail", range(50))
        items = await p.enqueue_many("mail", [pulse.JobItem(1, priority=3), 2])
        first = await _stored_at(p, handles[0])
        assert {handle.submitted_at for handle in handles} == {first}
        assert all(item.submitted_at is not None for item in items)


async def test_blocking_handle_has_the_moment(server: ServerUnderTest) -> None:
    def enqueue() -> tuple[list[datetime | None], list[datetime | None]]:
        with pulse.SyncPulse(server.address) as p:
            handles = [p.enqueue("mail"), *p.enqueue_many("mail", [1, 2])]
            stored = [p.get_job(handle.id).submitted_at for handle in handles]
            return [handle.submitted_at for handle in handles], stored

    given, stored = await asyncio.to_thread(enqueue)
    assert given == [stored[0], stored[1], stored[1]]
