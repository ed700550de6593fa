"""Schedules in a browser: made, retuned, fired, paused and deleted."""

from __future__ import annotations

from datetime import timedelta

from playwright.async_api import Browser, Page, expect

import pulse
from tests.ui.browsers import Complaints
from tests.ui.dashboards import DashboardUnderTest


async def test_schedule_is_made_after_a_look_at_its_next_fires(
    page: Page, dashboard: DashboardUnderTest
) -> None:
    await page.goto(f"{dashboard.url}/schedules")
    await page.get_by_role("link", name="New schedule").click()
    await page.get_by_label("Name").fill("morning-report")
    await page.get_by_label("Topic").fill("reports")
    await page.get_by_label("Expression", exact=True).fill("0 9 * * 1-5")
    await page.get_by_label("Time zone").fill("Europe/Paris")
    await expect(page.locator("#preview-words")).to_contain_text("09:00")
    await expect(page.locator("#preview time").nth(4)).to_be_visible()
    await page.get_by_label("Payload").fill('{"to": "a@b.c"}')
    await page.locator("#save").click()
    await expect(page.get_by_role("heading", name="morning-report")).to_be_visible()
    async with dashboard.client() as client:
        made = await client.schedules.get("morning-report")
    assert (made.topic, made.spec, made.args) == (
        "reports",
        pulse.Cron("0 9 * * 1-5", "Europe/Paris"),
        {"to": "a@b.c"},
    )


async def test_invalid_expression_is_reported_while_typing(page: Page, dashboard: DashboardUnderTest) -> None:
    await page.goto(f"{dashboard.url}/schedules/new")
    await page.get_by_label("Expression", exact=True).fill("61 9 * * *")
    await expect(page.locator("#preview-problem")).to_be_visible()
    await expect(page.get_by_label("Expression", exact=True)).to_have_value("61 9 * * *")


async def test_form_that_is_refused_comes_back_with_what_was_typed(
    page: Page, dashboard: DashboardUnderTest, complaints: Complaints
) -> None:
    complaints.expect("status of 400")
    async with dashboard.client() as client:
        await client.schedule("mail", {}, pulse.Every(timedelta(minutes=5)), name="taken")
    await page.goto(f"{dashboard.url}/schedules/new")
    await page.get_by_label("Name").fill("taken")
    await page.get_by_label("Topic").fill("reports")
    await page.get_by_label("Expression", exact=True).fill("@daily")
    await page.get_by_label("Payload").fill("{not json")
    await page.locator("#save").click()
    await expect(page.locator("#payload-problem")).to_be_visible()
    await page.get_by_label("Payload").fill('{"now": "json"}')
    await page.locator("#save").click()
    await expect(page.locator("#name-problem")).to_be_visible()
    await expect(page.get_by_label("Payload")).to_have_value('{"now": "json"}')


async def test_schedule_is_paused_resumed_fired_retuned_and_deleted(
    page: Page, dashboard: DashboardUnderTest
) -> None:
    async with dashboard.client() as client:
        made = await client.schedule("mail", {}, pulse.Every(timedelta(hours=5)), name="five hours")
        await page.goto(f"{dashboard.url}/schedules")
        await page.locator(f"#ask-pause-{made.id} summary").click()
        await page.locator(f"#pause-{made.id}").get_by_role("button").click()
        await expect(page.locator(f"#row-{made.id}")).to_have_class("is-paused")
        assert (await client.schedules.get(made.id)).paused
        await page.locator(f"#ask-resume-{made.id} summary").click()
        await page.locator(f"#resume-{made.id}").get_by_role("button").click()
        await expect(page.locator(f"#ask-pause-{made.id}")).to_be_visible()
        await page.locator(f"#ask-fire-{made.id} summary").click()
        await page.locator(f"#fire-{made.id}").get_by_role("button").click()
        await expect(page.locator(".notice.good")).to_contain_text("Fired")
        assert len(await client.schedules.fires(made.id)) == 1
        await page.goto(f"{dashboard.url}/schedules/{made.id}/edit")
        await page.get_by_label("Every", exact=True).fill("2h")
        await page.locator("#save").click()
        await expect(page).to_have_url(f"{dashboard.url}/schedules/{made.id}")
        assert (await client.schedules.get(made.id)).spec == pulse.Every(timedelta(hours=2))
        await page.locator(f"#ask-delete-{made.id} summary").click()
        await page.locator(f"#delete-{made.id}").get_by_role("button").click()
        await expect(page.get_by_text("No schedules yet")).to_be_visible()
        assert len(await client.schedules.list()) == 0


async def test_limit_of_the_start_is_shown_and_stays_when_something_else_is_edited(
    page: Page, dashboard: DashboardUnderTest
) -> None:
    async with dashboard.client() as client:
        hour = timedelta(hours=1)
        made = await client.schedule("mail", {}, pulse.Every(hour), name="limited", start_within=hour)
        await page.goto(f"{dashboard.url}/schedules/{made.id}/edit")
        await page.get_by_label("Topic").fill("reports")
        await page.locator("#save").click()
        await expect(page.locator("dt", has_text="Start within")).to_be_visible()
        changed = await client.schedules.get(made.id)
        assert (changed.topic, changed.start_within) == ("reports", hour)


async def test_schedule_can_be_made_and_fired_without_scripts(
    browser: Browser, dashboard: DashboardUnderTest
) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{dashboard.url}/schedules/new")
    await page.get_by_label("Name").fill("plain")
    await page.get_by_label("Topic").fill("mail")
    await page.get_by_label("Expression", exact=True).fill("@hourly")
    await page.locator("#save").click()
    await expect(page.get_by_role("heading", name="plain")).to_be_visible()
    await page.locator("summary", has_text="Fire").click()
    await page.get_by_role("button", name="Fire the schedule").click()
    async with dashboard.client() as client:
        assert len(await client.schedules.fires("plain")) == 1
    await context.close()
