"""The search at the top of each page, and its keys."""

from __future__ import annotations

import html
import re

import pytest
from playwright.async_api import Page, expect

from pulse_server.views import records
from pulse_server.work import jobs
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


async def test_slash_goes_to_the_search_which_finds_a_field_of_the_payload(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    async with dashboard.client() as client:
        wanted = await client.enqueue("mail", {"order_id": 42})
        await client.enqueue("mail", {"order_id": 43})
    await page.goto(f"{dashboard.url}/workers")
    await page.keyboard.press("/")
    await page.keyboard.type("args.order_id=42")
    await page.keyboard.press("Enter")
    await expect(page.locator("main tbody tr")).to_have_count(1)
    await expect(page.locator(f"#row-{wanted.id}")).to_be_visible()
    await expect(page.locator("#compared")).to_have_text("Compared 2 jobs: all there are.")


async def test_question_mark_opens_the_help_and_escape_closes_it(
    page: Page, dashboard: DashboardUnderTest
) -> None:
    await page.goto(f"{dashboard.url}/jobs")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys and search")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("#help")).to_be_hidden()
    # A question mark in a field is a question mark.
    await page.locator("#find-id").fill("")
    await page.locator("#find-id").press("?")
    await expect(page.locator("#find-id")).to_have_value("?")
    await expect(page.locator("#help")).to_be_hidden()


async def test_search_states_its_bound_and_goes_on_with_older_jobs(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "COMPARED", 4)
    old = await server.submit("orders")
    await server.submit_many(4, "mail")
    await page.goto(f"{dashboard.url}/find?q=order")
    await expect(page.locator("#compared")).to_contain_text(
        "No job matches. Compared the newest 4 jobs: until"
    )
    await expect(page.locator("#found-topics")).to_have_text("Topics: orders")
    await page.locator("#search-older").click()
    await expect(page.locator(f"#row-{old}")).to_be_visible()


async def test_list_of_a_topic_states_its_bound_and_goes_on_with_older_jobs(
    server: ServerUnderTest, dashboard: DashboardUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "GLANCED_JOBS", 1)
    monkeypatch.setattr(jobs, "SEARCHED_JOBS", 4)
    old = await server.submit("orders")
    await server.submit_many(4, "mail")
    new = await server.submit("orders")
    visitor = Visitor(dashboard.url)
    newest = await visitor.get("/jobs?topic=orders")
    assert "Searched back to" in newest.text
    assert (new in newest.text, old in newest.text) == (True, False)
    older = re.search(r'id="search-older" href="([^"]+)"', newest.text)
    assert older
    assert old in (await visitor.get(html.unescape(older[1]))).text
    waiting = await visitor.get("/jobs?topic=orders&status=PENDING")
    assert (old in waiting.text, "Searched back to" in waiting.text) == (True, False)


async def test_bad_search_is_explained(dashboard: DashboardUnderTest) -> None:
    visitor = Visitor(dashboard.url)
    for query, words in (("args..x%3D1", "names no field"), ("x" * 300, "at the most"), ("%00", "NUL")):
        answer = await visitor.get(f"/find?q={query}")
        assert (answer.status, words in answer.text) == (400, True), query


async def test_producer_finds_by_id_only(guarded: DashboardUnderTest) -> None:
    async with guarded.client("admin") as client:
        job = await client.enqueue("mail", {})
    visitor = Visitor(guarded.url)
    await visitor.log_in("producer")
    assert (await visitor.get(f"/find?q={job.id[:30]}")).location == f"/jobs/{job.id}"
    assert "There is no job whose id starts with" in (await visitor.get("/find?q=mail")).text
