"""Logging in and out, in a browser."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.ui.conftest import log_in
from tests.ui.dashboards import DashboardUnderTest


async def test_right_password_leads_to_the_overview(page: Page, guarded: DashboardUnderTest) -> None:
    await log_in(page, guarded, "operator")
    await expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    await expect(page.locator(".who")).to_contain_text("operator")
