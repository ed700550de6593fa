"""One job in a browser: what it shows, and what can be done to it."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.browsers import Complaints
from tests.ui.conftest import log_in
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.furnishing import HOSTILE
from tests.ui.visitors import Visitor

pytestmark = pytest.mark.usefixtures("lively")

HOSTILE_IN_JSON = "<img src=x onerror=alert(1)>"


async def test_job_shows_its_attempts_and_its_payload(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail", b'{"to": "a@b.c"}', max_attempts=1)
    async with server.worker("w1", topics=["mail"], capacity=1) as worker:
        await worker.fail(await worker.take_one(), "SMTPError: mailbox full\nTraceback: line 1")
    await page.goto(f"{dashboard.url}/jobs/{job_id}")
    main = page.locator("main")
    await expect(main).to_contain_text("SMTPError: mailbox full")
    await expect(main).to_contain_text("w1")
    await expect(main).to_contain_text('"a@b.c"')
    await expect(main).to_contain_text("1 of 1")


async def test_completed_job_shows_its_result(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    with_result, without = await server.submit_many(2)
    async with server.worker("w1", topics=["mail"], capacity=2) as worker:
        for job in await worker.take(2):
            value = f'{{"note": "{HOSTILE_IN_JSON}"}}'.encode()
            result = pb.Result(job_id=job.job_id, attempt=1, success=True)
            returned = {0: value} if job.job_id == with_result else {}
            request = pb.ReportResultsRequest(worker_id="w1", results=[result], returned=returned)
            await server.stub.ReportResults(request)
    await page.goto(f"{dashboard.url}/jobs/{with_result}")
    await expect(page.locator("#result")).to_contain_text("<img src=x onerror=")
    await expect(page.locator("main img, main script")).to_have_count(0)
    await page.goto(f"{dashboard.url}/jobs/{without}")
    await expect(page.locator("main")).to_contain_text("Payload")
    await expect(page.locator("#result-heading")).to_have_count(0)


async def test_what_users_and_workers_wrote_is_text(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    async with dashboard.client() as client:
        job = await client.enqueue(
            "mail", {"text": HOSTILE}, metadata={"note": HOSTILE}, key=HOSTILE, max_attempts=1
        )
    async with server.worker(HOSTILE, topics=["mail"], capacity=1) as worker:
        await worker.fail(await worker.take_one(), HOSTILE)
    for path in (f"/jobs/{job.id}", "/jobs", "/dead-letters", "/workers"):
        await page.goto(dashboard.url + path)
        await expect(page.locator("main img, main script")).to_have_count(0)
    await page.goto(f"{dashboard.url}/jobs/{job.id}")
    await expect(page.locator("main")).to_contain_text("<img src=x onerror=")


async def test_job_is_canceled_retried_and_deleted(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail")
    status = page.locator("main .status").first
    await page.goto(f"{dashboard.url}/jobs/{job_id}")
    await page.locator("#ask-cancel summary").click()
    await page.locator("#ask-cancel").get_by_label("Reason").fill("a wrong address")
    await page.get_by_role("button", name="Cancel the job").click()
    await expect(status).to_contain_text("Canceled")
    await expect(page.locator("main")).to_contain_text("a wrong address")
    await page.locator("#ask-retry summary").click()
    await page.locator("#ask-retry").get_by_role("button", name="Retry").click()
    await expect(status).to_contain_text("Pending")
    async with server.worker("w1", topics=["mail"], capacity=1) as worker:
        await worker.complete(await worker.take_one())
    await expect(status).to_contain_text("Completed")
    await page.locator("#ask-delete summary").click()
    await page.get_by_role("button", name="Delete the job").click()
    await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    async with dashboard.client() as client:
        with pytest.raises(pulse.NotFound):
            await client.get_job(job_id)


async def test_priority_is_changed(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail")
    await page.goto(f"{dashboard.url}/jobs/{job_id}")
    await page.locator("#ask-priority summary").click()
    await page.get_by_label("New priority").fill("42")
    await page.get_by_role("button", name="Change priority").click()
    await expect(page.locator(".notice.good")).to_be_visible()
    async with dashboard.client() as client:
        assert (await client.get_job(job_id)).priority == 42


async def test_late_change_is_reported_on_the_page(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail")
    # Not a browser: an open page brings itself up to date, and then offers the change no more.
    visitor = Visitor(dashboard.url)
    await visitor.get(f"/jobs/{job_id}")
    async with server.worker("w1", topics=["mail"], capacity=1) as worker:
        await worker.complete(await worker.take_one())
    answer = await visitor.post(f"/jobs/{job_id}/cancel", [("back", f"/jobs/{job_id}")])
    assert re.search(
        r'class="banner notice bad"[^>]*>[^<]*COMPLETED', (await visitor.get(answer.location)).text
    )


async def test_unknown_job_is_not_found(
    page: Page, dashboard: DashboardUnderTest, complaints: Complaints
) -> None:
    complaints.expect("404")
    await page.goto(f"{dashboard.url}/jobs/00000000-0000-7000-8000-000000000000")
    await expect(page.get_by_role("heading", name="Not found")).to_be_visible()


async def test_viewer_is_offered_no_action(page: Page, guarded: DashboardUnderTest) -> None:
    async with guarded.client("admin") as client:
        job = await client.enqueue("mail", {})
    await log_in(page, guarded, "viewer")
    await page.goto(f"{guarded.url}/jobs/{job.id}")
    await expect(page.locator("main .status").first).to_contain_text("Pending")
    await expect(page.locator("#ask-cancel, #ask-priority, #ask-delete")).to_have_count(0)


async def test_job_is_canceled_without_scripts(
    browser: Browser, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    job_id = await server.submit("mail")
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{dashboard.url}/jobs/{job_id}")
    await page.locator("#ask-cancel summary").click()
    await page.get_by_role("button", name="Cancel the job").click()
    await expect(page.locator("main .status").first).to_contain_text("Canceled")
    await context.close()
