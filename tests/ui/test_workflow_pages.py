"""Workflows in the dashboard: the list, one as a drawing and a table, its actions, and its jobs elsewhere."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

import pulse
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test
from tests.ui.visitors import Visitor


@pytest_asyncio.fixture(loop_scope="session")
async def client(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, user="", password="") as client:
        yield client


async def nightly(client: pulse.Pulse) -> pulse.WorkflowHandle:
    """Start three extracts, a load after them, and two jobs after the load."""
    async with client.workflow("nightly") as flow:
        parts = [flow.add("extract", name=f"extract-{day}", max_attempts=1) for day in ("mon", "tue", "wed")]
        load = flow.add("load", after=parts)
        flow.add("report", after=load)
        flow.add("notify", after=load, when="always")
    return flow.handle


def text_of(page: str) -> str:
    """The text of a page without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


async def test_list_shows_progress_and_says_how_to_start_one(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    visitor = Visitor(dashboard.url)
    page = (await visitor.get("/workflows")).text
    assert "No workflows yet" in page
    assert "p.workflow(" in page
    run = await nightly(client)
    page = (await visitor.get("/workflows")).text
    assert f'href="/workflows/{run.id}"' in page
    assert "0 of 6 jobs ended" in page


async def test_list_is_filtered_by_name_and_status(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    run = await nightly(client)
    visitor = Visitor(dashboard.url)
    assert run.id in (await visitor.get("/workflows?name=nightly&status=running")).text
    for query in ("name=other", "status=failed", "name=night"):
        page = (await visitor.get(f"/workflows?{query}")).text
        assert run.id not in page
        assert "No workflow matches" in page
    assert (await visitor.get("/workflows?name=&status=running")).location == "/workflows?status=running"


async def test_list_comes_in_pages(
    dashboard: DashboardUnderTest, client: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_ui.tuning.PAGE_SIZE", 2)
    first, *_, last = [await nightly(client) for _ in range(3)]
    visitor = Visitor(dashboard.url)
    page = (await visitor.get("/workflows?name=nightly")).text
    assert last.id in page
    assert first.id not in page
    (older,) = re.findall(r'id="older" href="([^"]*)"', page)
    page = (await visitor.get(older.replace("&amp;", "&"))).text
    assert first.id in page
    assert last.id not in page
    assert "There is no such page" in (await visitor.get("/workflows?cursor=odd")).text


async def test_workflow_is_drawn_and_listed(dashboard: DashboardUnderTest, client: pulse.Pulse) -> None:
    run = await nightly(client)
    page = (await Visitor(dashboard.url).get(f"/workflows/{run.id}")).text
    for name, job in run.jobs.items():
        assert len(re.findall(f'<a class="box [a-z]+" id="right-[0-9]+" href="/jobs/{job.id}">', page)) == 1
        assert f'<a href="/jobs/{job.id}">{name}</a>' in page
    assert "<title>load: waits for 3 of 3</title>" in page
    assert "<title>extract × 3" not in page
    assert "<title>3 jobs on extract: 3 pending</title>" in page, "folded on narrow screens"
    assert "<title>notify: waits for 1 of 1 (runs always)</title>" in page


async def test_page_of_an_unknown_workflow_says_so(dashboard: DashboardUnderTest) -> None:
    visitor = Visitor(dashboard.url)
    answer = await visitor.get("/workflows/019a0000-0000-7000-8000-000000000001")
    assert answer.status == 404
    assert (await visitor.get("/workflows/odd")).status in (400, 404)


async def test_table_of_a_large_workflow_comes_in_pages(
    dashboard: DashboardUnderTest, client: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_ui.tuning.WORKFLOW_PAGE", 100)
    async with client.workflow("crawl") as flow:
        first = flow.add("list")
        pages = [flow.add("page", after=first) for _ in range(250)]
        flow.add("collect", after=pages)
    visitor = Visitor(dashboard.url)
    page = (await visitor.get(f"/workflows/{flow.id}")).text
    assert "<title>250 jobs on page: 250 waiting</title>" in page
    assert "Page 1 of 3, 252 jobs" in page
    (link,) = set(re.findall(r'href="(/workflows/[^"]*like=[0-9]*)#jobs"><title>250 jobs', page))
    page = (await visitor.get(link)).text
    assert "Only the jobs of one box." in page
    assert "Page 1 of 3, 250 jobs" in page
    page = (await visitor.get(f"/workflows/{flow.id}?state=pending")).text
    assert re.findall(r'<tr id="job-(\d+)">', page) == ["1"]


async def test_large_workflow_is_not_read_at_every_refresh(
    dashboard: DashboardUnderTest, client: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_ui.tuning.WORKFLOW_PAGE", 5)
    run = await nightly(client)
    visitor = Visitor(dashboard.url)
    await visitor.get(f"/workflows/{run.id}")
    await client.cancel(run.jobs["extract-mon"].id)
    assert "Canceled <span" not in (await visitor.get(f"/workflows/{run.id}")).text
    await visitor.post(f"/workflows/{run.id}/cancel")
    assert "Canceled <span" in (await visitor.get(f"/workflows/{run.id}")).text, "after an action it is"


async def test_large_workflow_that_has_ended_is_read_once_until_it_is_retried(
    dashboard: DashboardUnderTest, client: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_ui.tuning.WORKFLOW_PAGE", 5)
    monkeypatch.setattr("pulse_ui.tuning.WORKFLOW_READ_AGE", timedelta(0))
    monkeypatch.setattr("pulse_ui.tuning.WORKFLOW_READ_SHARE", 0)
    run = await nightly(client)
    await run.cancel()
    await run.wait()
    visitor = Visitor(dashboard.url)
    assert "canceled: deleted" not in (await visitor.get(f"/workflows/{run.id}")).text
    await client.delete(run.jobs["extract-mon"].id)
    assert "canceled: deleted" not in (await visitor.get(f"/workflows/{run.id}")).text
    await run.retry()
    assert "extract-tue on extract: ready" in (await visitor.get(f"/workflows/{run.id}")).text


async def test_workflow_too_large_to_draw_is_listed(
    dashboard: DashboardUnderTest, client: pulse.Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await nightly(client)
    monkeypatch.setattr("pulse_ui.tuning.WORKFLOW_JOBS_READ", 4)
    monkeypatch.setattr("pulse_ui.tuning.WORKFLOW_PAGE", 2)
    page = (await Visitor(dashboard.url).get(f"/workflows/{run.id}")).text
    assert "too large to draw" in page
    assert "Only the first 4 jobs are shown." in page


async def test_open_page_follows_the_workflow(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse, lively: None
) -> None:
    run = await nightly(client)
    await page.goto(f"{dashboard.url}/workflows/{run.id}")
    box = page.locator("#right-4")
    await expect(box).to_contain_text("waits for 3 of 3")
    async with server.worker("w1", topics=["extract", "load"], capacity=4) as worker:
        jobs = await worker.take(3)
        await worker.complete(*jobs[:2], capacity=2)
        await expect(box).to_contain_text("waits for 1 of 3")
        await worker.complete(jobs[2], capacity=1)
        await worker.complete(await worker.take_one())
    await expect(box).to_contain_text("completed in")
    await expect(page.locator("#progress-text")).to_have_text("4 of 6 jobs ended.")
    await expect(page.locator("#job-5 .status")).to_have_text("○Pending")
    await box.click()
    await expect(page).to_have_url(f"{dashboard.url}/jobs/{run.jobs['load'].id}")
    await page.locator("#workflow-link").click()
    await expect(page).to_have_url(f"{dashboard.url}/workflows/{run.id}")


async def test_narrow_screen_shows_the_drawing_from_top_to_bottom(
    page: Page, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    run = await nightly(client)
    await page.set_viewport_size({"width": 390, "height": 800})
    await page.goto(f"{dashboard.url}/workflows/{run.id}")
    await expect(page.locator("#drawing-right")).to_be_hidden()
    boxes = page.locator("#drawing-down a.box")
    await expect(boxes).to_have_count(4)
    places = [await box.bounding_box() for box in await boxes.all()]
    extracts, load, report, notify = [place["y"] for place in places if place is not None]
    assert extracts < load < report == notify
    await boxes.first.click()
    await expect(page.locator("#like-note")).to_be_visible()
    await expect(page.locator("#workflow-jobs tbody tr")).to_have_count(3)


async def test_workflow_is_canceled_and_retried(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse, lively: None
) -> None:
    run = await nightly(client)
    await page.goto(f"{dashboard.url}/workflows/{run.id}")
    await expect(page.locator("#ask-retry")).to_have_count(0)
    await page.get_by_text("Cancel…").click()
    await page.get_by_label("Reason").fill("wrong day")
    await page.get_by_role("button", name="Cancel the workflow").click()
    await expect(page.locator("#notices")).to_contain_text("The workflow was canceled.")
    await expect(page.locator("main .status").first).to_have_text("–Canceled")
    await expect(page.locator("#ask-cancel")).to_have_count(0)
    await page.get_by_text("Retry…").click()
    await expect(page.locator("#ask-retry")).to_contain_text("Completed jobs do not run again.")
    await page.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator("#notices")).to_contain_text("The workflow was retried.")
    await expect(page.locator("main .status").first).to_have_text("▶Running")
    await expect(page.locator("#right-4")).to_contain_text("waits for 3 of 3")


async def test_viewer_sees_workflows_and_changes_nothing(guarded: DashboardUnderTest) -> None:
    async with guarded.client("admin") as client:
        run = await nightly(client)
    visitor = Visitor(guarded.url)
    await visitor.log_in("viewer")
    page = (await visitor.get(f"/workflows/{run.id}")).text
    assert "0 of 6 jobs ended" in page
    assert "ask-cancel" not in page
    for action in ("cancel", "retry"):
        assert (await visitor.post(f"/workflows/{run.id}/{action}")).status == 403


async def test_read_only_dashboard_offers_no_actions(server: ServerUnderTest, client: pulse.Pulse) -> None:
    run = await nightly(client)
    async with dashboard_under_test(server.address, read_only=True) as dashboard:
        visitor = Visitor(dashboard.url)
        assert "ask-cancel" not in (await visitor.get(f"/workflows/{run.id}")).text
        assert (await visitor.post(f"/workflows/{run.id}/cancel")).status == 403


async def test_job_names_its_workflow_and_the_jobs_that_it_waits_for(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    run = await nightly(client)
    visitor = Visitor(dashboard.url)
    path = f"/jobs/{run.jobs['load'].id}"
    async with server.worker("w1", topics=["extract"], capacity=1) as worker:
        await worker.complete(await worker.take_one(), capacity=1)
        await worker.take_one()

        async def waits_for_two() -> bool:
            return "waits for 2 jobs" in (await visitor.get(path)).text

        await eventually(waits_for_two, "the job waits for two")
        page = (await visitor.get(path)).text
        assert "It waits for 2 jobs of its workflow: extract-tue (RUNNING), extract-wed (PENDING)." in page
        assert f"pulse jobs explain {run.jobs['extract-tue'].id}" in page
        assert f'href="/workflows/{run.id}">nightly</a>' in page
    assert "waits for other jobs" in (await visitor.get("/jobs?topic=load")).text


async def test_topics_count_jobs_that_wait_for_jobs_apart(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await nightly(client)
    visitor = Visitor(dashboard.url)

    async def is_counted() -> bool:
        return "3 for other jobs" in (await visitor.get("/")).text

    await eventually(is_counted, "the jobs are counted")
    assert "0 + 1 for jobs" in text_of((await visitor.get("/")).text)
    assert "3 ready, 0 not due yet, 3 waiting for other jobs" in (await visitor.get("/jobs")).text
