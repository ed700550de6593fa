"""The list of jobs in a browser: filtered, paged while jobs flow, and acted on."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, Page, expect

from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.conftest import log_in
from tests.ui.dashboards import DashboardUnderTest

ROWS = "#job-rows tr"


async def shown_ids(page: Page) -> list[str]:
    ids: list[str] = await page.locator(ROWS).evaluate_all("rows => rows.map(row => row.id.slice(4))")
    return ids


async def test_filters_narrow_the_list(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    wanted = await server.submit("mail", metadata={"tenant": "acme"})
    await server.submit("mail", metadata={"tenant": "other"})
    await server.submit("reports")
    await page.goto(f"{dashboard.url}/jobs")
    await page.get_by_label("Topic").fill("mail")
    await page.locator("#more-filters summary").click()
    await page.get_by_label("Metadata").fill("tenant=acme")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.locator(ROWS)).to_have_count(1)
    assert await shown_ids(page) == [wanted]
    of_topic = page.get_by_role("link", name="Remove the filter: Topic mail")
    await of_topic.click()
    await expect(of_topic).to_have_count(0)
    await expect(page.locator(ROWS)).to_have_count(1)
    await page.get_by_role("link", name="Remove the filter: Metadata").click()
    await expect(page.locator(ROWS)).to_have_count(3)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("since=soon", "since"),
        ("metadata=acme", "metadata"),
        ("status=LOST", "status"),
        ("schedule=7", "schedule"),
    ],
)
async def test_invalid_filter_is_reported_at_its_field(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, query: str, field: str
) -> None:
    await server.submit("mail")
    await page.goto(f"{dashboard.url}/jobs?{query}")
    await expect(page.locator(f"#problem-{field}")).to_be_visible()


async def rows_and_next(page: Page) -> tuple[list[str], str | None]:
    """The jobs that a page shows and the way to older ones, of the same moment: the page may change."""
    found: tuple[list[str], str | None] = await page.evaluate(
        """() => [[...document.querySelectorAll("#job-rows tr")].map((row) => row.id.slice(4)),
                  document.getElementById("older")?.href ?? null]"""
    )
    return found


async def test_pages_neither_repeat_nor_miss_a_job_while_others_flow(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    there = await server.submit_many(120, "mail")

    async def keep_submitting() -> None:
        while True:
            await server.submit("mail")

    flow = asyncio.create_task(keep_submitting())
    try:
        await page.goto(f"{dashboard.url}/jobs?topic=mail")
        seen, older = await rows_and_next(page)
        while older:
            await page.goto(older)
            more, older = await rows_and_next(page)
            seen += more
    finally:
        flow.cancel()
    assert len(seen) == len(set(seen))
    assert [job_id for job_id in seen if job_id in set(there)] == there[::-1]


async def test_selected_jobs_are_canceled_after_a_question(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    first, second, third = await server.submit_many(3, "mail")
    await page.goto(f"{dashboard.url}/jobs")
    await expect(page.locator("#do-cancel")).to_be_disabled()
    await page.locator(f"#tick-{first}").check()
    await page.locator(f"#tick-{second}").check()
    await page.locator("#do-cancel").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Cancel 2 jobs?")
    await page.get_by_label("Reason").fill("not needed")
    await page.locator("#confirm-button").click()
    await expect(page.locator(".notice.good")).to_be_visible()
    statuses = [(await server.get(job_id)).status for job_id in (first, second, third)]
    assert statuses == ["CANCELED", "CANCELED", "PENDING"]


async def test_all_that_match_are_retried_and_nothing_else(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    mail = await server.submit_many(1_200, "mail")
    other = await server.submit("reports")
    async with dashboard.client() as client:
        async for _ in client.cancel_matching(topic="mail"):
            pass
        await client.cancel(other)
    await page.goto(f"{dashboard.url}/jobs?topic=mail&status=CANCELED")
    await page.locator("#all-matching summary").click()
    await page.locator("#all-retry").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Retry 1,200 jobs?")
    await page.locator("#confirm-button").click()
    await expect(page.locator("#operation-state")).to_have_text("Done: 1,200 jobs retried.")
    assert await server.table.count("status = 'PENDING'") == len(mail)
    assert (await server.get(other)).status == "CANCELED"


@pytest.mark.parametrize(("action", "status"), [("delete", ""), ("prioritize", "PENDING")])
async def test_selected_job_is_deleted_or_goes_first(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, action: str, status: str
) -> None:
    job_id = await server.submit("mail")
    async with dashboard.client() as client:
        if action == "delete":
            await client.cancel(job_id)
        await page.goto(f"{dashboard.url}/jobs")
        await page.locator(f"#tick-{job_id}").check()
        await page.locator(f"#do-{action}").click()
        if action == "prioritize":
            await page.get_by_label("New priority").fill("9")
        await page.locator("#confirm-button").click()
        await expect(page.locator(".notice.good")).to_be_visible()
        left = [(job.id, job.status, job.priority) for job in await client.list_jobs()]
    assert left == ([] if action == "delete" else [(job_id, status, 9)])


async def test_job_that_the_action_does_not_apply_to_is_listed_before(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    waiting, canceled = await server.submit_many(2, "mail")
    async with dashboard.client() as client:
        await client.cancel(canceled)
    await page.goto(f"{dashboard.url}/jobs/confirm?action=cancel&id={waiting}&id={canceled}")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Cancel 1 job?")
    await expect(page.locator("#unable")).to_contain_text("1 selected job cannot be")


async def test_ready_job_has_the_reason_why_it_does_not_run(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail")
    async with dashboard.client() as client:
        await client.pause(topic="mail")
    await page.goto(f"{dashboard.url}/jobs")
    await expect(page.locator(f"#row-{job_id} .job-state")).to_contain_text("paused")


async def test_viewer_selects_nothing(page: Page, guarded: DashboardUnderTest) -> None:
    async with guarded.client("admin") as client:
        await client.enqueue("mail", {})
    await log_in(page, guarded, "viewer")
    await page.goto(f"{guarded.url}/jobs")
    await expect(page.locator(ROWS)).to_have_count(1)
    await expect(page.locator("main input[type=checkbox], #action-bar")).to_have_count(0)


async def test_job_is_found_by_its_id_and_by_the_beginning_of_it(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail")
    for typed in (job_id, f" {job_id[:18]} ", job_id.replace("-", "").upper()):
        await page.goto(f"{dashboard.url}/jobs")
        await page.locator("#find-id").fill(typed)
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{dashboard.url}/jobs/{job_id}")


async def test_selected_job_is_canceled_without_scripts(
    browser: Browser, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail")
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{dashboard.url}/jobs")
    await page.locator(f"#tick-{job_id}").check()
    await page.locator("#do-cancel").click()
    await page.locator("#confirm-button").click()
    await expect(page.locator(".notice.good")).to_be_visible()
    assert (await server.get(job_id)).status == "CANCELED"
    await context.close()


async def test_fields_follow_the_filter_that_was_chosen_elsewhere(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await server.submit("mail")
    await page.goto(f"{dashboard.url}/jobs?topic=mail")
    await page.locator("#tab-PENDING").click()
    await expect(page.locator("#filter-status")).to_have_value("PENDING")
    await page.get_by_role("link", name="Remove the filter: Topic mail").click()
    await expect(page.locator("#filter-topic")).to_have_value("")
