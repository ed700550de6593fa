"""The overview in a browser."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.async_api import Page, expect

from pulse_server.views import attention
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.conftest import log_in
from tests.ui.dashboards import DashboardUnderTest

pytestmark = pytest.mark.usefixtures("lively")


async def test_topic_without_a_worker_needs_attention_until_one_comes(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "WORKERS_AWAY", timedelta())
    await server.submit("mail")
    await page.goto(dashboard.url)
    await expect(page.locator("main")).to_contain_text("mail has 1 ready job and no worker")
    async with server.worker("w1", topics=["mail"], capacity=1) as worker:
        job = await worker.take_one()
        await expect(page.locator("main")).not_to_contain_text("no worker")
        await worker.complete(job)


async def test_pause_is_shown_on_every_page_and_can_be_resumed(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    async with dashboard.client() as client:
        await client.pause(reason="a move of the database")
        for path in ("/", "/jobs", "/dead-letters", "/schedules", "/workers", "/dispatch"):
            await page.goto(dashboard.url + path)
            await expect(page.locator("#paused-banner")).to_contain_text("a move of the database")
        await client.resume()
        await expect(page.locator("#paused-banner")).to_have_count(0)


async def test_numbers_of_a_minute_are_shown_when_pointed_at(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await server.submit_many(3, "mail")
    await server.app.views.statistics.record()
    await page.goto(dashboard.url)
    columns = page.locator("#chart-throughput .plot-hits li")
    # The minute may have changed since they were submitted.
    column = columns.filter(has_text="Submitted 3")
    await column.hover()
    await expect(column.locator(".reading")).to_be_visible()


async def test_charts_can_be_read_as_a_table(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await server.submit_many(3, "mail")
    await server.app.views.statistics.record()
    await page.goto(dashboard.url)
    await page.get_by_text("Show the charts as a table").click()
    submitted = page.locator("#numbers tbody td:nth-child(2)")
    await expect(submitted.filter(has_text=re.compile("^3$"))).to_be_visible()


async def test_everything_can_be_reached_with_the_keyboard(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail")
    await page.goto(f"{dashboard.url}/jobs/{job_id}")
    reached = set()
    for _ in range(60):
        await page.keyboard.press("Tab")
        reached.add(
            await page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id")
        )
    wanted = {
        "Skip to the content",
        "find-id",
        "Overview",
        "Jobs",
        "Dead letters",
        "Topics",
        "Cancel…",
        "Priority…",
    }
    assert wanted - reached == set()


async def test_producer_sees_why_the_overview_is_closed(page: Page, guarded: DashboardUnderTest) -> None:
    await log_in(page, guarded, "producer")
    await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    await expect(page.locator("#nav a", has_text="Workers")).to_have_count(0)
    await expect(page.locator("main")).to_contain_text("producer")


MANY_TOPICS = """
    INSERT INTO pulse.jobs
        (id, topic, payload, priority, max_attempts, submitted_at, next_run_at, queued, status)
    SELECT gen_random_uuid(), 'topic-' || lpad(number::text, 5, '0'), '', 0, 5, now(), now(), true, 'PENDING'
    FROM generate_series(1, 1500) AS number
"""


async def test_thousands_of_topics_are_searched_and_paged(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await server.table.connection.execute(MANY_TOPICS)
    await page.goto(dashboard.url)
    await expect(page.locator("#topics-heading")).to_have_text("1,500 topics")
    await expect(page.locator("main")).to_contain_text("1,500")  # ready in all, not in those that are shown
    await page.fill("#topic-search", "-0077")
    await page.press("#topic-search", "Enter")
    await expect(page.locator("#topics-heading")).to_have_text("10 topics with “-0077”")
    await expect(page.locator("#topics tbody tr")).to_have_count(10)
    await page.get_by_role("link", name="Clear").click()
    await page.get_by_role("link", name="Show all 1,500 by name").click()
    await expect(page.locator("#topic-topic-00200")).to_be_visible()
    await page.get_by_role("link", name="Next page").click()
    await expect(page.locator("#topic-topic-00201")).to_be_visible()
    await expect(page.locator("#topic-topic-00200")).to_have_count(0)
