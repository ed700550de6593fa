"""The pages of topics: the list, one topic with its settings, and old addresses that lead there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from playwright.async_api import Page, expect
from starlette.requests import Request

import pulse
from pulse import Latency
from pulse_ui.overview.charts import NO_LATENCY, buckets_of, depth_charts_of
from pulse_ui.settings import Settings
from pulse_ui.web import rendering
from pulse_ui.web.rendering import Rendering
from pulse_ui.web.visits import navigation
from pulse_ui.words import GREENWICH
from tests.postgres.completed_jobs import add_completed
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor

HOUR = datetime(2030, 1, 1, 12, tzinfo=UTC)


async def test_topic_is_paused_with_a_reason_and_resumed_on_its_page(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await server.submit("mail")
    await page.goto(f"{dashboard.url}/topics")
    await page.locator("#topics").get_by_role("link", name="mail").click()
    await expect(page.get_by_role("heading", name="mail", level=1)).to_be_visible()
    await expect(page.locator("#topic-state")).to_have_text("✕No worker")
    await expect(page.locator("#topic-why")).to_contain_text("No worker")
    await page.get_by_text("Pause…").click()
    await page.locator("#ask-pause").get_by_label("Reason (optional)").fill("the bank is down")
    await page.get_by_role("button", name="Pause mail").click()
    await expect(page.locator("#topic-paused")).to_contain_text("the bank is down")
    await expect(page.locator("#topic-state")).to_contain_text("Paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#topic-paused")).to_have_count(0)


async def test_question_before_a_shorter_retention_is_answered(
    page: Page, dashboard: DashboardUnderTest, database_dsn: str
) -> None:
    connection = await asyncpg.connect(database_dsn)
    await add_completed(connection, 1, timedelta(hours=2))
    await connection.close()
    await page.goto(f"{dashboard.url}/topics/mail")
    for answer in ("#back", "#confirm-button"):
        await page.locator("#change-settings > summary").click()
        await page.locator("#set-keep_completed").fill("1h")
        await page.locator("#set-settings button").click()
        await expect(page.locator("#consequence")).to_contain_text("up to 1 COMPLETED job for good")
        assert page.url.endswith("/topics/mail")
        await page.locator(answer).click()
        await expect(page.locator("#settings-heading")).to_be_visible()
        await expect(page.locator("#shorter-from")).to_have_count(int(answer == "#confirm-button"))


async def test_topic_shows_its_depth_schedules_workers_and_dead_letters(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await server.submit_many(3, "shop/mail")
    async with dashboard.client() as client:
        await client.schedule("shop/mail", {}, pulse.Every(timedelta(hours=1)), name="hourly")
    async with server.worker("mailer-1", topics=["shop/mail"], capacity=2) as worker:
        dead, _ = await worker.take(2)
        await worker.fail(dead, "ValueError: no such address", discard=True)
        await server.app.views.statistics.record()
        text = (await Visitor(dashboard.url).get("/topics/shop/mail")).text
    for part in ("mailer-1", "hourly", "ValueError: no such address", "Oldest ready job", "Running"):
        assert part in text
    assert "Ready <b>" in text


async def test_pages_are_shown_without_an_explanation_that_pulsed_cannot_give(
    server: ServerUnderTest, dashboard: DashboardUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise pulse.ResourceExhausted("Too many calls of this kind are in progress. Try again in a moment.")

    monkeypatch.setattr(pulse.Pulse, "explain_jobs", refuse)
    monkeypatch.setattr(pulse.Pulse, "explain_topic", refuse)
    job_id = await server.submit("mail")
    visitor = Visitor(dashboard.url)
    for path, words in (
        (f"/jobs/{job_id}", "What it waits for cannot be explained now."),
        ("/topics/mail", "Why its jobs wait cannot be explained now."),
        ("/jobs", job_id),
    ):
        answer = await visitor.get(path)
        assert (answer.status, words in answer.text) == (200, True), path


@each_row(
    "path, leads_to",
    [
        ("/?topic=mail", "/topics/mail"),
        ("/topics?open=shop/mail", "/topics/shop/mail"),
        ("/topics?open=mail&section=settings", "/topics/mail#settings"),
        ("/topics?open=mail&section=//evil", "/topics/mail"),
    ],
)
async def test_address_leads_to_the_page_of_the_topic(
    dashboard: DashboardUnderTest, path: str, leads_to: str
) -> None:
    answer = await Visitor(dashboard.url).get(path)
    assert (answer.status, answer.location) == (303, leads_to)


def test_navigation_has_six_sections_and_the_pages_of_the_current_one() -> None:
    found = navigation("/dead-letters", lambda _method: True)
    assert [link.name for link in found.sections] == [
        "Overview",
        "Jobs",
        "Topics",
        "Schedules",
        "Workers",
        "Audit",
    ]
    assert [link.name for link in found.sections if link.is_here] == ["Jobs"]
    assert [link.name for link in found.pages if link.is_here] == ["Dead letters"]
    assert navigation("/topics/a/b", lambda _method: True).pages[0].is_here
    for view, name in (
        ("", "All topics"),
        ("limits", "Limits"),
        ("settings", "Settings"),
        ("x", "All topics"),
    ):
        found = navigation("/topics", lambda _method: True, view)
        assert [link.name for link in found.pages if link.is_here] == [name]


def test_navigation_leaves_out_pages_that_a_role_may_not_open() -> None:
    found = navigation("/dispatch", {"ListTopicSettings", "GetDispatchStatus"}.__contains__)
    assert [link.path for link in found.sections] == ["/dispatch"]
    assert [link.path for link in found.pages] == ["/dispatch", "/topics?view=settings"]


def minute(number: int, ready: int | None, oldest: float | None) -> pulse.Minute:
    nothing: Latency = NO_LATENCY
    at = HOUR + number * timedelta(minutes=1)
    return pulse.Minute(at, 0, 0, 0, 0, 0, 0, nothing, nothing, ready, ready and 1, oldest)


def test_depth_of_several_minutes_is_that_of_the_deepest() -> None:
    minutes = [minute(number, number % 5, 60.0 * number) for number in range(10)]
    buckets = buckets_of(minutes, 5)
    assert [(bucket.ready, bucket.running, bucket.oldest_seconds) for bucket in buckets] == [
        (4, 1, 240.0),
        (4, 1, 540.0),
    ]


@pytest.mark.parametrize("ready", [None, 0, 10**9])
def test_depth_is_drawn_with_any_number_and_without_a_sample(ready: int | None) -> None:
    minutes = [minute(number, ready, None if ready is None else 1e9) for number in range(60)]
    depth, oldest = depth_charts_of(buckets_of(minutes, 1), 60, GREENWICH)
    assert (depth.is_empty, oldest.is_empty) == (ready is None, ready is None)


async def test_schedule_form_reports_the_expression_with_the_other_fields(
    dashboard: DashboardUnderTest,
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get("/schedules/new")
    fields = [("topic", ""), ("kind", "cron"), ("cron", "0 0 30 2 *"), ("time_zone", "UTC")]
    text = (await visitor.post("/schedules/new", fields)).text
    assert "Enter the topic of its jobs" in text
    assert text.count("never occurs") == 2  # at the field, and in the preview


def test_outage_of_the_database_is_called_that() -> None:
    settings = Settings()
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""})
    error = pulse.Unavailable("The database did not answer (list_jobs: TimeoutError). Try again.")
    page = rendering.answer(Rendering(settings), request, error)
    assert b"The database is unavailable" in page.body
