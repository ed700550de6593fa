"""`export_jobs`: continues where it was after a broken connection, and blocks in SyncPulse."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import pulse
from faults.proxy import Proxy
from pulse_server.views import records
from tests.transport.pulse_server_under_test import ServerUnderTest


async def finished(server: ServerUnderTest, count: int) -> list[str]:
    """Canceled jobs, an hour old. Returns their ids in the order of submission."""
    ids = await server.submit_many(count)
    async with pulse.Pulse(server.address) as client:
        async for _ in client.cancel_matching(topic="mail"):
            pass
    await server.table.connection.execute(
        "UPDATE pulse.jobs SET submitted_at = submitted_at - interval '1 hour', "
        "finished_at = finished_at - interval '1 hour'"
    )
    rows = await server.table.connection.fetch("SELECT id FROM pulse.jobs ORDER BY submitted_at, id")
    assert len(rows) == len(ids)
    return [str(row["id"]) for row in rows]


async def test_export_continues_where_a_broken_connection_left_it(
    server: ServerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "LOOK_AT", 10)
    ids = await finished(server, 45)
    proxy = Proxy(server.address)
    await proxy.open()
    seen: list[str] = []
    async with pulse.Pulse(proxy.address) as client:
        async for page in client.export_jobs():
            seen += [job.id for job in page]
            if len(seen) in (10, 30):
                proxy.cut()
    await proxy.close()

    assert seen == ids


async def test_last_page_has_no_cursor_and_says_where_the_next_export_begins(server: ServerUnderTest) -> None:
    ids = await finished(server, 3)
    async with pulse.Pulse(server.address) as client:
        (page,) = [page async for page in client.export_jobs()]
        assert page.next_cursor is None
        assert page.before is not None
        assert [job.id for job in page] == ids
        assert page.jobs[0].status == pulse.JobStatus.CANCELED
        assert [len(late) async for late in client.export_jobs(since=page.before)] == [0]


async def test_blocking_client_exports(server: ServerUnderTest) -> None:
    ids = await finished(server, 3)

    def export() -> list[str]:
        with pulse.SyncPulse(server.address) as client:
            pages = client.export_jobs(topic="mail", status="CANCELED", before=datetime.now(UTC))
            return [job.id for page in pages for job in page]

    assert await asyncio.to_thread(export) == ids


async def test_refusal_ends_the_export(server: ServerUnderTest) -> None:
    async with pulse.Pulse(server.address) as client:
        with pytest.raises(pulse.InvalidArgument, match="only finished jobs"):
            [page async for page in client.export_jobs(status="RUNNING")]
        with pytest.raises(pulse.InvalidArgument, match="no time zone"):
            [page async for page in client.export_jobs(before=datetime(2030, 1, 1))]
        with pytest.raises(pulse.InvalidArgument, match="topic is empty"):
            [page async for page in client.export_jobs(topic="")]


async def test_export_gives_up_when_no_server_answers_in_time() -> None:
    async with pulse.Pulse("127.0.0.1:9", timeout=timedelta(seconds=0.3)) as client:
        with pytest.raises(pulse.Unavailable):
            [page async for page in client.export_jobs()]
