"""A browser logs in, meets the end of its session, and writes times as the server does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Page, expect

from pulse_ui import tuning, words
from tests.ui.browsers import Complaints
from tests.ui.conftest import log_in
from tests.ui.dashboards import DashboardUnderTest, pass_time


async def test_right_password_leads_to_the_overview(page: Page, guarded: DashboardUnderTest) -> None:
    await log_in(page, guarded, "operator")
    await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    await expect(page.locator(".who")).to_contain_text("operator")


@pytest.mark.usefixtures("lively")
async def test_open_page_reports_the_end_of_the_session_and_keeps_typed_text(
    page: Page, guarded: DashboardUnderTest, complaints: Complaints
) -> None:
    complaints.expect("401")
    await log_in(page, guarded, "admin")
    await page.locator("#find-id").fill("half an id")
    pass_time(guarded, tuning.SESSION_IDLE * 2)
    banner = page.locator("#connection-banner")
    await expect(banner).to_contain_text("Your session has ended")
    await expect(page.locator("#find-id")).to_have_value("half an id")
    await banner.get_by_role("link", name="Log in again").click()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()


AGES = [0, 0.4, 1, 5.5, 59.9, 60, 61, 599, 600, 3_599, 3_600, 7_260, 36_000, 86_400, 172_801, 999_999]


async def test_browser_and_server_write_times_alike(page: Page, dashboard: DashboardUnderTest) -> None:
    """Else every refresh would flicker."""
    await page.goto(dashboard.url)
    now = datetime.now(UTC)
    moments = [now + sign * timedelta(seconds=age + 0.05) for age in AGES for sign in (1, -1)]
    await page.clock.set_fixed_time(now)
    said = await page.evaluate(
        """(moments) => {
          const box = document.createElement("div");
          box.innerHTML = moments.map((one) => `<time datetime="${one}" data-time="ago">?</time>`).join("");
          document.body.append(box);
          document.dispatchEvent(new CustomEvent("pulse:shown", {detail: {root: box}}));
          return [...box.children].map((one) => one.textContent);
        }""",
        [moment.isoformat() for moment in moments],
    )
    assert said == [words.ago(moment, now) for moment in moments]
