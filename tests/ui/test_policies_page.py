"""Retention of topics, from a page."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
from playwright.async_api import Page, expect

import pulse
from tests.postgres.completed_jobs import add_completed
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


async def test_retention_of_a_topic_is_set_shown_and_returned(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    assert "COMPLETED 7d, CANCELED 7d, DEAD_LETTERED 30d" in (await visitor.get("/retention")).text
    await visitor.post("/retention", [("topic", "audit"), ("completed", "forever"), ("canceled", "12h")])
    async with pulse.Pulse(server.address) as client:
        (policy,) = await client.topic_policies()
        assert (policy.keep_completed, policy.keep_canceled) == ("forever", timedelta(hours=12))
        assert policy.keep_dead_lettered == "default"
        shown = (await visitor.get("/retention")).text
        assert "policy-audit" in shown
        assert "12h" in shown
        await visitor.post("/retention", [("topic", "audit"), ("completed", ""), ("canceled", "")])
        (policy,) = await client.topic_policies()
        assert (policy.keep_completed, policy.keep_canceled) == ("default", "default")
        assert policy.keep_before == {"COMPLETED": "forever"}, "7d is shorter: not at once"
        await visitor.post("/retention", [("topic", "mail"), ("canceled", "12h")])
        await visitor.post("/retention", [("topic", "mail"), ("canceled", "")])
        assert [policy.topic for policy in await client.topic_policies()] == ["audit"]


async def test_retention_that_is_no_duration_changes_nothing(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get("/retention")
    await visitor.post("/retention", [("topic", "audit"), ("completed", "soon"), ("back", "/retention")])
    assert "is not a duration" in (await visitor.get("/retention")).text
    await visitor.post("/retention", [("topic", " "), ("completed", "1d"), ("back", "/retention")])
    assert "Enter a topic" in (await visitor.get("/retention")).text
    async with pulse.Pulse(server.address) as client:
        assert not len(await client.topic_policies())


async def test_shorter_retention_asks_with_a_count_and_shows_when_it_takes_effect(
    server: ServerUnderTest, dashboard: DashboardUnderTest, database_dsn: str
) -> None:
    connection = await asyncpg.connect(database_dsn)
    await add_completed(connection, 3, timedelta(hours=2))
    await connection.close()
    visitor = Visitor(dashboard.url)
    await visitor.get("/topics/mail")
    shorter = [("topic", "mail"), ("completed", "1h"), ("canceled", "7d"), ("back", "/topics/mail")]

    page = (await visitor.post("/retention", shorter)).text

    assert "This deletes up to 3 COMPLETED jobs for good" in page
    assert '<input type="hidden" name="completed" value="1h">' in page
    async with pulse.Pulse(server.address) as client:
        assert not len(await client.topic_policies())
        assert (await visitor.post("/retention", [*shorter, ("confirmed", "yes")])).status == 303
        (policy,) = await client.topic_policies()
        assert (policy.keep_completed, policy.keep_before) == (
            timedelta(hours=1),
            {"COMPLETED": timedelta(days=7)},
        )
    assert "The shorter time takes effect" in (await visitor.get("/topics/mail")).text
    assert "(7d until then)" in (await visitor.get("/retention")).text


async def test_question_is_answered_in_a_browser(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, database_dsn: str
) -> None:
    connection = await asyncpg.connect(database_dsn)
    await add_completed(connection, 1, timedelta(hours=2))
    await connection.close()
    await page.goto(f"{dashboard.url}/topics/mail")
    for answer in ("#back", "#confirm-button"):
        await page.locator("#change-retention > summary").click()
        await page.locator("#keep-completed").fill("1h")
        await page.locator("#set-retention button").click()
        await expect(page.locator("#consequence")).to_contain_text("up to 1 COMPLETED job for good")
        assert page.url.endswith("/topics/mail")
        await page.locator(answer).click()
        await expect(page.locator("#retention-heading")).to_be_visible()
        await expect(page.locator("#shorter-from")).to_have_count(int(answer == "#confirm-button"))
