"""Jobs by hand: enqueue one, edit and enqueue another, run one again, signal one, and resume its topic."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from playwright.async_api import Page, expect

import pulse
from tests.eventually import eventually
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.conftest import log_in
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


async def test_job_is_enqueued_by_hand(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await page.goto(f"{dashboard.url}/jobs?topic=mail")
    await page.locator("#enqueue").click()
    await expect(page.locator("#topic")).to_have_value("mail")
    await page.get_by_label("Payload").fill('{"to": "ada"}')
    await page.get_by_label("Priority").fill("7")
    await page.get_by_label("Delay").fill("2h")
    await page.get_by_role("button", name="Enqueue").click()
    await expect(page.locator(".notice.good")).to_have_text("Enqueued on mail.")
    async with dashboard.client() as client:
        (job,) = await client.list_jobs()
        job = await client.get_job(job.id)
    assert (job.topic, job.args, job.priority, job.lane) == ("mail", {"to": "ada"}, 7, None)
    late = job.next_run_at - job.submitted_at - timedelta(hours=2)  # type: ignore[operator]
    assert abs(late) < timedelta(seconds=1), "the statement reads the clock for each"


async def test_all_problems_of_the_form_are_shown_at_once(dashboard: DashboardUnderTest) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get("/jobs/new")
    typed = [("topic", ""), ("payload", "{"), ("priority", "x"), ("delay", "soon"), ("metadata", "team")]
    answer = await visitor.post("/jobs/new", typed)
    assert answer.status == 400
    for field in ("topic", "payload", "priority", "delay", "metadata"):
        assert f'id="{field}-problem"' in answer.text
    refused = await visitor.post("/jobs/new", [("topic", "not a topic")])
    assert (refused.status, 'id="topic-problem"' in refused.text) == (400, True)


async def test_form_that_is_sent_twice_stores_one_job(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get("/jobs/new")
    form = [("topic", "mail"), ("job_id", "0199c0de-0000-7000-8000-000000000001")]
    answers = [await visitor.post("/jobs/new", form) for _ in range(2)]
    assert [answer.location for answer in answers] == ["/jobs/0199c0de-0000-7000-8000-000000000001"] * 2
    other = await visitor.post("/jobs/new", [*form, ("payload", "1")])
    assert "This form was sent before" in other.text
    assert await server.table.count("true") == 1


async def test_job_is_run_again_and_edited(server: ServerUnderTest, dashboard: DashboardUnderTest) -> None:
    async with dashboard.client() as client:
        first = await client.enqueue(
            "mail",
            b"\xff no JSON",
            priority=3,
            lane="acme",
            max_attempts=9,
            key="once",
            metadata={"team": "a", "traceparent": "x"},
        )
        await client.cancel(first.id)
        visitor = Visitor(dashboard.url)
        page = await visitor.get(f"/jobs/{first.id}")
        assert "Run again" in page.text
        again = await visitor.post(f"/jobs/{first.id}/run-again")
        edited = await visitor.get(f"/jobs/new?source={first.id}")
        assert "is not JSON or too large for a form" in edited.text
        typed = [("source", first.id), ("topic", "mail"), ("priority", "5"), ("metadata", "team=a")]
        changed = await visitor.post("/jobs/new", typed)
        copies = [await client.get_job(answer.location.rpartition("/")[2]) for answer in (again, changed)]
    assert [(job.payload, job.priority, job.metadata) for job in copies] == [
        (b"\xff no JSON", 3, {"team": "a"}),
        (b"\xff no JSON", 5, {"team": "a"}),
    ]
    assert (copies[0].lane, copies[0].max_attempts, copies[0].idempotency_key) == ("acme", 9, None)


async def test_waiting_job_is_shown_as_such_and_goes_on_after_a_signal(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    async with pulse.Pulse(server.address, user="", password="") as p:

        @p.job("approval")
        async def approval(ctx: pulse.Context) -> dict[str, int]:
            return await ctx.wait_for("approved", returns=dict[str, int])

        @p.job("nap")
        async def nap(ctx: pulse.Context) -> None:
            await ctx.sleep(timedelta(hours=1))

        task = asyncio.create_task(p.run(handle_signals=False))
        handle, asleep = await approval.enqueue(), await nap.enqueue()

        async def both_wait() -> bool:
            return None not in [(await p.get_job(job.id)).waits_for for job in (handle, asleep)]

        await eventually(both_wait, "the jobs are suspended")
        await page.goto(f"{dashboard.url}/jobs")
        await expect(page.locator(f"#row-{asleep.id} .status")).to_have_text("☾Sleeping")
        await expect(page.locator(f"#row-{handle.id} .status")).to_have_text("⚑Waiting")
        await expect(page.locator(f"#row-{handle.id} .job-state")).to_have_text("for signal approved")
        await page.goto(f"{dashboard.url}/jobs/{handle.id}")
        await expect(page.locator(".job-head .status")).to_have_text("⚑Waiting for signal approved")
        await page.locator("#ask-signal summary").click()
        await page.get_by_label("Value").fill("{")
        await page.get_by_role("button", name="Send the signal").click()
        await expect(page.locator(".notice.bad")).to_contain_text("Not valid JSON")
        await page.locator("#ask-signal summary").click()
        await page.get_by_label("Value").fill('{"ok": 1}')
        await page.get_by_role("button", name="Send the signal").click()
        await expect(page.locator(".notice.good")).to_have_text("Sent the signal approved.")
        assert await handle.result(timeout=timedelta(seconds=30)) == {"ok": 1}
        task.cancel()
        await asyncio.wait({task})


async def test_paused_topic_is_resumed_on_the_page_of_its_job(
    page: Page, guarded: DashboardUnderTest
) -> None:
    async with guarded.client("admin") as client:
        job = await client.enqueue("mail", {})
        await client.pause(topic="mail", reason="bank is down")
        await log_in(page, guarded, "operator")
        await page.goto(f"{guarded.url}/jobs/{job.id}")
        await expect(page.locator("#outlook")).to_contain_text("by admin: bank is down")
        await page.locator("#resume").click()
        await expect(page.locator(".notice.good")).to_have_text("Resumed the topic mail.")
        assert not (await client.dispatch_status()).topics


async def test_viewer_neither_enqueues_nor_signals(guarded: DashboardUnderTest) -> None:
    async with guarded.client("admin") as client:
        job = await client.enqueue("mail", {})
        await client.pause(topic="mail")
    visitor = Visitor(guarded.url)
    await visitor.log_in("viewer")
    page = (await visitor.get(f"/jobs/{job.id}")).text
    for hidden in ("ask-signal", "edit-and-enqueue", "ask-run-again", 'id="resume"'):
        assert hidden not in page
    assert (await visitor.get("/jobs/new")).status == 403
