"""The page of a job that was snoozed, that timed out, or that may only start for some time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pulse
from pulse.jobs.submissions import ItemOptions
from pulse_cli.jobs.views import describe_job, whole_job_shape
from tests.eventually import eventually
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor

AT, HOUR = datetime(2100, 1, 1, tzinfo=UTC), timedelta(hours=1)
AN_ID = "0199c0de-0000-7000-8000-000000000001"

# Each option of an enqueue with a value, the key of the job in JSON with what that becomes, and words that
# the CLI and the page show of it.
OPTIONS: dict[str, tuple[object, str, object, str]] = {
    "priority": (7, "priority", 7, "Priority 7"),
    "delay": (HOUR, "next_run_at", HOUR, ""),
    "run_at": (AT, "next_run_at", "2100-01-01T00:00:00Z", ""),
    "max_attempts": (9, "max_attempts", 9, "Attempts 0 of 9"),
    "start_within": (HOUR, "start_by", HOUR, "Start by"),
    "lane": ("acme", "lane", "acme", "Lane acme"),
    "metadata": ({"tenant": "acme"}, "metadata", {"tenant": "acme"}, "tenant acme"),
    "unique": (pulse.Unique("shop-7", while_="live"), "unique_key", "shop-7", "Unique key shop-7"),
    "key": ("order-7", "idempotency_key", "order-7", "Idempotency key order-7"),
    "job_id": (AN_ID, "id", AN_ID, AN_ID),
}


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


def test_every_option_of_an_enqueue_is_followed() -> None:
    assert OPTIONS.keys() == ItemOptions.__annotations__.keys()


@each_row("option", OPTIONS)
async def test_option_of_an_enqueue_is_stored_and_shown(dashboard: DashboardUnderTest, option: str) -> None:
    given, key, stored, words = OPTIONS[option]
    async with dashboard.client() as client:
        handle = await client.enqueue("quiet", **{option: given})  # type: ignore[arg-type]
        job = await client.get_job(handle.id)
    value = whole_job_shape(job)[key]
    if isinstance(stored, timedelta):
        value = datetime.fromisoformat(value) - datetime.fromisoformat(whole_job_shape(job)["submitted_at"])
        assert timedelta(0) <= value - stored < timedelta(minutes=1)
    else:
        assert value == stored
    described = " ".join("".join(cell.text for cell in line) for line in describe_job(job))
    page = re.sub("<[^>]+>", " ", (await Visitor(dashboard.url).get(f"/jobs/{job.id}")).text)
    assert words in " ".join(described.split())
    assert words in " ".join(page.split())


async def test_page_shows_the_unique_key_and_whether_it_holds(dashboard: DashboardUnderTest) -> None:
    visitor = Visitor(dashboard.url)
    async with dashboard.client() as client:
        job = await client.enqueue("quiet", unique=pulse.Unique("shop-7", while_="live"))
        held = (await visitor.get(f"/jobs/{job.id}")).text
        assert "<code>shop-7</code>" in held
        assert "until it is finished" in held
        await client.cancel(job.id)
        assert "no longer held" in (await visitor.get(f"/jobs/{job.id}")).text
