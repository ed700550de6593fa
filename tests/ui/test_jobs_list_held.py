"""The list of jobs stays still for its reader, and its first screen is full."""

from __future__ import annotations

from playwright.async_api import Browser, Page, expect

from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest

ROWS = "#job-rows tr"
NEW = "[data-new-rows]"
_ON_THE_FIRST_SCREEN = """() => [...document.querySelectorAll("#job-rows tr")]
    .map((row) => row.getBoundingClientRect())
    .map((box) => [box.height, box.bottom <= window.innerHeight])"""


async def test_paused_list_counts_new_jobs_and_shows_them_on_request(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, lively: None
) -> None:
    await server.submit_many(3, "mail")
    await page.goto(f"{dashboard.url}/jobs")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator(".live-words")).to_have_text("Paused")
    await server.submit_many(2, "mail")
    await expect(page.locator(NEW)).to_have_text("2 new")
    await expect(page.locator(ROWS)).to_have_count(3)
    await page.locator(NEW).click()
    await expect(page.locator(ROWS)).to_have_count(5)
    await expect(page.locator(NEW)).to_be_hidden()
    await server.submit("mail")
    await expect(page.locator(NEW)).to_have_text("1 new")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(ROWS)).to_have_count(6)


async def test_scrolled_list_does_not_move_until_its_reader_is_back_at_the_top(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, lively: None
) -> None:
    first, *_ = await server.submit_many(45, "mail")
    await page.goto(f"{dashboard.url}/jobs")
    await page.evaluate("window.scrollTo(0, 600)")
    await server.submit("mail")
    await expect(page.locator(NEW)).to_have_text("1 new")
    await expect(page.locator(ROWS)).to_have_count(45)
    # The rows that are shown are kept up to date.
    async with dashboard.client() as client:
        await client.cancel(first)
    await expect(page.locator(f"#row-{first} .status")).to_have_text("–Canceled")
    await page.evaluate("window.scrollTo(0, 0)")
    await expect(page.locator(ROWS)).to_have_count(46)


async def test_rate_is_chosen_once_for_all_pages(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await page.goto(f"{dashboard.url}/jobs")
    await page.locator("#refresh-rate").select_option("60")
    await page.goto(f"{dashboard.url}/workers")
    await expect(page.locator("#refresh-rate")).to_have_value("60")
    await page.goto(f"{dashboard.url}/jobs")
    job_id = await server.submit("mail")
    await page.wait_for_timeout(1_500)
    await expect(page.locator(f"#row-{job_id}")).to_have_count(0)


async def test_first_screen_of_a_laptop_has_fifteen_jobs(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await server.submit_many(30, "mail")
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.goto(f"{dashboard.url}/jobs")
    boxes = await page.evaluate(_ON_THE_FIRST_SCREEN)
    assert max(height for height, _ in boxes) <= 40
    assert sum(is_seen for _, is_seen in boxes) >= 15


async def test_phone_folds_the_filters_and_shows_jobs_at_once(
    browser: Browser, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await server.submit_many(10, "mail")
    context = await browser.new_context(viewport={"width": 390, "height": 844})
    page = await context.new_page()
    await page.goto(f"{dashboard.url}/jobs")
    assert sum(is_seen for _, is_seen in await page.evaluate(_ON_THE_FIRST_SCREEN)) >= 4
    await expect(page.get_by_label("Topic")).to_be_hidden()
    await page.locator("#filters-fold > summary").click()
    await expect(page.get_by_label("Topic")).to_be_visible()
    await context.close()
