"""Dead letters in a browser: in groups, one retried first, then the rest."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

import pulse
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest

pytestmark = pytest.mark.usefixtures("lively")


async def let_die(server: ServerUnderTest, errors: list[str]) -> list[str]:
    """Have one job die of each of these errors. Returns their ids, in order."""
    job_ids = await server.submit_many(len(errors), "mail", max_attempts=1)
    async with server.worker("w1", topics=["mail"], capacity=len(errors)) as worker:
        jobs = {job.job_id: job for job in await worker.take(len(errors))}
        for job_id, error in zip(job_ids, errors, strict=True):
            await worker.fail(jobs[job_id], error)
    return job_ids


async def test_group_is_retried_one_first_then_all(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    alike = [f"SMTPError: mailbox {number} is full" for number in range(5)]
    await let_die(server, [*alike, "KeyError: 'user'"])
    await page.goto(f"{dashboard.url}/dead-letters")
    groups = page.locator("li.group")
    await expect(groups).to_have_count(2)
    mail = groups.filter(has_text="mailbox")
    await expect(mail.locator(".group-number")).to_have_text("5")
    await mail.locator("summary", has_text="Retry one first").click()
    await mail.get_by_role("button", name="Retry one first").click()
    await expect(page.locator(".notice.good")).to_be_visible()
    async with dashboard.client() as client:
        assert (await client.count_jobs(status="DEAD_LETTERED")).count == 5
        await expect(mail.locator(".group-number")).to_have_text("4")
        await mail.locator("summary", has_text="Retry all").click()
        await mail.get_by_role("button", name="Retry all").click()
        await expect(page.locator("#operation-state")).to_have_text("Done: 4 jobs retried.")
        left = await client.list_jobs(status="DEAD_LETTERED")
    assert [job.last_error for job in left] == ["KeyError: 'user'"]


async def test_group_leads_to_the_list_of_its_jobs(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    first, second, other = await let_die(server, ["boom 1", "boom 2", "KeyError: 'user'"])
    await page.goto(f"{dashboard.url}/dead-letters")
    await page.locator("li.group").filter(has_text="boom").get_by_role("link", name="List all").click()
    await expect(page.locator(f"#row-{first}")).to_be_visible()
    await expect(page.locator(f"#row-{second}")).to_be_visible()
    await expect(page.locator(f"#row-{other}")).to_have_count(0)


async def test_group_is_deleted(page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest) -> None:
    await let_die(server, ["boom 1", "boom 2", "KeyError: 'user'"])
    await page.goto(f"{dashboard.url}/dead-letters")
    boom = page.locator("li.group").filter(has_text="boom")
    await boom.locator("summary", has_text="Delete all").click()
    await boom.get_by_role("button", name="Delete all").click()
    await expect(page.locator("#operation-state")).to_have_text("Done: 2 jobs deleted.")
    async with dashboard.client() as client:
        assert (await client.count_jobs(status=pulse.JobStatus.DEAD_LETTERED)).count == 1
