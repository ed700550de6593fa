"""The page of a job that was snoozed, that timed out, or that may only start for some time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pulse
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


@asynccontextmanager
async def worker(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address) as p:

        @p.job("later")
        async def later(ctx: pulse.Context) -> None:
            if ctx.run == 1:
                raise pulse.Snooze(timedelta(milliseconds=10), "the shop is closed")

        @p.job("endless", timeout=timedelta(milliseconds=50))
        async def endless() -> None:
            await asyncio.Event().wait()

        task = asyncio.create_task(p.run(handle_signals=False))
        yield p
        task.cancel()
        await asyncio.wait({task})


async def finished(p: pulse.Pulse, topic: str) -> str:
    """Enqueue a job that may fail once, and return its id when it has finished."""
    job = await p.enqueue(topic, max_attempts=1)

    async def look() -> bool:
        return (await p.get_job(job.id)).status.is_finished

    await eventually(look, "the job finishes")
    return job.id


async def test_page_shows_snoozes_and_time_limits(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    async with worker(server) as p:
        snoozed = (await visitor.get(f"/jobs/{await finished(p, 'later')}")).text
        assert "1 of 1" in snoozed
        assert "1 snoozed" in snoozed
        assert ">Snoozed</span>" in snoozed
        assert '<p class="error-line muted">the shop is closed</p>' in snoozed
        late = (await visitor.get(f"/jobs/{await finished(p, 'endless')}")).text
        assert ">Timed out</span>" in late
        assert "its only attempt failed" in late


async def test_page_shows_until_when_a_job_may_start(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    async with pulse.Pulse(server.address) as p:
        job = await p.enqueue("mail", start_within=timedelta(hours=1))
    assert "<dt>Start by</dt>" in (await Visitor(dashboard.url).get(f"/jobs/{job.id}")).text


async def test_page_shows_the_unique_key_and_whether_it_holds(dashboard: DashboardUnderTest) -> None:
    visitor = Visitor(dashboard.url)
    async with dashboard.client() as client:
        job = await client.enqueue("quiet", unique=pulse.Unique("shop-7", while_="live"))
        held = (await visitor.get(f"/jobs/{job.id}")).text
        assert "<code>shop-7</code>" in held
        assert "until it is finished" in held
        await client.cancel(job.id)
        assert "no longer held" in (await visitor.get(f"/jobs/{job.id}")).text
