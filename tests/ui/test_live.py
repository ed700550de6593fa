"""Open pages refresh, and report when they cannot."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Route, expect

from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.ui.browsers import Complaints, close_pages
from tests.ui.conftest import log_in
from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test
from tests.ui.visitors import Visitor

pytestmark = pytest.mark.usefixtures("lively")


async def test_job_that_was_just_submitted_appears_by_itself(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await page.goto(f"{dashboard.url}/jobs")
    job_id = await server.submit("mail")
    await expect(page.locator(f"#row-{job_id}")).to_be_visible()


async def test_running_job_is_followed_to_its_end(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail")
    await page.goto(f"{dashboard.url}/jobs/{job_id}")
    await expect(page.locator("main .status").first).to_have_text("○Pending")
    async with server.worker("w1", topics=["mail"], capacity=1) as worker:
        (job,) = await worker.take(1)
        await expect(page.locator("main .status").first).to_have_text("▶Running")
        await worker.complete(job)
    await expect(page.locator("main .status").first).to_have_text("✓Completed")


async def test_page_asks_by_itself_where_the_stream_does_not_come_through(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, complaints: Complaints
) -> None:
    async def refuse(route: Route) -> None:
        await route.abort()

    complaints.expect("/events")
    await page.route("**/events*", refuse)
    await page.goto(f"{dashboard.url}/jobs")
    job_id = await server.submit("mail")
    await expect(page.locator(f"#row-{job_id}")).to_be_visible()


async def test_refresh_takes_nothing_out_of_the_reader_s_hands(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    first, *_ = await server.submit_many(40, "mail")
    await page.goto(f"{dashboard.url}/jobs")
    await page.locator(f"#row-{first} input[type=checkbox]").check()
    await page.locator("#find-id").fill("typed")
    await page.evaluate("window.scrollTo(0, 300)")
    top = await page.evaluate("window.scrollY")
    assert top > 0
    async with page.expect_response(lambda answer: "pulse-live" in answer.request.headers):
        await server.submit("mail")
    await expect(page.locator("[data-held]")).to_have_count(1)
    assert await page.evaluate("window.scrollY") == top
    assert await page.evaluate("document.activeElement.id") == "find-id"
    await expect(page.locator("#find-id")).to_have_value("typed")
    await expect(page.locator(f"#row-{first} input[type=checkbox]")).to_be_checked()


@pytest.mark.usefixtures("impatient")
async def test_page_reports_unavailable_pulsed_and_recovers(
    page: Page, database_dsn: str, kept_address: str, complaints: Complaints
) -> None:
    complaints.expect("503")
    async with server_under_test(database_dsn, grpc_address=kept_address) as first:
        job_id = await first.submit("mail")
        running = dashboard_under_test(kept_address)
        dashboard = await running.__aenter__()
        await page.goto(f"{dashboard.url}/jobs")
        await expect(page.locator(f"#row-{job_id}")).to_be_visible()
    await expect(page.locator("#connection-banner")).to_contain_text("pulsed is unavailable")
    await expect(page.locator(f"#row-{job_id}")).to_be_visible()
    async with server_under_test(database_dsn, grpc_address=kept_address) as second:
        await expect(page.locator("#connection-banner")).to_be_hidden()
        later = await second.submit("mail")
        await expect(page.locator(f"#row-{later}")).to_be_visible()
        await close_pages()
        await running.__aexit__(None, None, None)


@pytest.mark.usefixtures("impatient")
async def test_page_without_pulsed_retries(
    page: Page, database_dsn: str, kept_address: str, complaints: Complaints
) -> None:
    complaints.expect("503")
    async with dashboard_under_test(kept_address) as dashboard:
        await page.goto(f"{dashboard.url}/jobs")
        await expect(page.get_by_role("heading", name="pulsed is unavailable")).to_be_visible()
        async with server_under_test(database_dsn, grpc_address=kept_address):
            await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
            await close_pages()


@pytest.mark.usefixtures("impatient")
async def test_change_without_pulsed_is_not_sent_again_and_leads_back(
    database_dsn: str, kept_address: str
) -> None:
    async with server_under_test(database_dsn, grpc_address=kept_address) as server:
        job_id = await server.submit("mail")
        running = dashboard_under_test(kept_address)
        dashboard = await running.__aenter__()
        visitor = Visitor(dashboard.url)

        async def is_shown() -> bool:
            return (await visitor.get(f"/jobs/{job_id}")).status == 200

        await eventually(is_shown, "the page of the job is shown")
    page = f"{dashboard.url}/jobs/{job_id}"
    answer = await visitor.post(f"/jobs/{job_id}/cancel", headers={"referer": page})
    assert (answer.status, "Check before you repeat it." in answer.text) == (503, True)
    assert f'href="/jobs/{job_id}"' in answer.text
    assert "data-try-again" not in answer.text
    assert "retries automatically" not in answer.text
    await running.__aexit__(None, None, None)


async def test_dashboard_that_was_restarted_asks_for_the_password_again(
    page: Page, guarded_server: ServerUnderTest, kept_address: str, complaints: Complaints
) -> None:
    complaints.expect("401")
    complaints.expect("net::ERR_")  # which one depends on what the browser has under way when it goes
    port = int(kept_address.rpartition(":")[2])
    async with dashboard_under_test(guarded_server.address, port=port) as first:
        await log_in(page, first, "admin")
        await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    banner = page.locator("#connection-banner")
    await expect(banner).to_contain_text("The dashboard is unavailable")
    async with dashboard_under_test(guarded_server.address, port=port):
        await expect(banner).to_contain_text("Your session has ended")
        await close_pages()


async def test_back_button_shows_the_page_before(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await page.goto(f"{dashboard.url}/jobs")
    await page.get_by_role("link", name="Workers").click()
    await expect(page.get_by_role("heading", name="Workers", level=1)).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()


@pytest.mark.parametrize("theme", ["dark", "light"])
async def test_colors_that_were_chosen_stay(page: Page, dashboard: DashboardUnderTest, theme: str) -> None:
    await page.goto(dashboard.url)
    for _ in range(["dark", "light"].index(theme) + 1):
        await page.locator("#theme button").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", theme)
    await page.goto(f"{dashboard.url}/workers")
    await expect(page.locator("html")).to_have_attribute("data-theme", theme)
