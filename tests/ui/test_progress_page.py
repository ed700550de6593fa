"""Progress on the pages of a job, of lists and of workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect

import pulse
from pulse import tuning
from pulse_ui.jobs.views import progress_view
from pulse_ui.web.sessions import Listener
from pulse_ui.words import progress_words
from tests.eventually import eventually
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.jobs_to_show import at, job
from tests.ui.visitors import Visitor

NOW = at(60)
HALF = pulse.Progress(0.5, "20 of 40 <files>", {"file": 20}, 1, reported_at=NOW, since=at(0))


@asynccontextmanager
async def copying(server: ServerUnderTest, reports: asyncio.Queue[tuple[Any, ...]]) -> AsyncIterator[str]:
    """Run a job that reports what the test asks for. Returns its id."""
    async with pulse.Pulse(server.address) as p:

        @p.job("copy")
        async def copy(ctx: pulse.Context) -> None:
            while True:
                fraction, text = await reports.get()
                ctx.progress(fraction, text, cursor={"file": "<20>"})

        task = asyncio.create_task(p.run(handle_signals=False))
        handle = await copy.enqueue()
        try:
            yield handle.id
        finally:
            await p.cancel(handle.id)
            task.cancel()
            await asyncio.wait({task})


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "HOLD_LOOK_SECONDS", 0.01)


@pytest.mark.usefixtures("at_once")
async def test_bar_moves_by_itself(
    page: Page, server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    reports: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
    async with copying(server, reports) as job_id:
        await page.goto(f"{dashboard.url}/jobs/{job_id}")
        await expect(page.locator("main .status").first).to_have_text("▶Running")
        await expect(page.locator("#progress")).to_have_count(0)
        for fraction, percent in ((0.25, "25%"), (0.5, "50%")):
            reports.put_nowait((fraction, f"{percent} of <files>"))
            await expect(page.locator("#progress-text b")).to_have_text(percent)
            await expect(page.locator("#progress-text")).to_contain_text(f"{percent} of <files>")
            bar = page.locator("#progress-bar")
            await expect(bar).to_have_attribute("aria-valuenow", str(fraction * 100))


@pytest.mark.usefixtures("at_once")
async def test_lists_and_workers_show_it_too(server: ServerUnderTest, dashboard: DashboardUnderTest) -> None:
    visitor = Visitor(dashboard.url)
    reports: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
    reports.put_nowait((0.25, "10 of <40>"))
    async with copying(server, reports) as job_id:

        async def shows(path: str) -> bool:
            return "25%, 10 of &lt;40&gt;" in (await visitor.get(path)).text

        await eventually(lambda: shows("/jobs?status=RUNNING"))
        await eventually(lambda: shows("/workers"))
        text = (await visitor.get(f"/jobs/{job_id}")).text
    assert "&#34;file&#34;: &#34;&lt;20&gt;&#34;" in text
    text = (await visitor.get(f"/jobs/{job_id}")).text
    assert "Attempt 1, " in text  # canceled: as far as it came
    assert "left</span>" not in text


def test_rest_is_estimated_while_the_attempt_runs() -> None:
    shown = progress_view(job("RUNNING", attempts=1, progress=HALF), NOW)
    assert shown is not None
    assert (shown.share, shown.percent, shown.rest, shown.attempt) == (50.0, "50%", "about 1 min left", None)
    later = progress_view(job("RUNNING", attempts=2, progress=HALF), NOW)
    assert later is not None
    assert (later.rest, later.attempt) == ("", 1)
    assert progress_view(job("RUNNING", attempts=1), NOW) is None


def test_unknown_share_has_a_text_and_no_bar() -> None:
    progress = pulse.Progress(None, "1,200 rows", attempt=1, reported_at=NOW)
    shown = progress_view(job("RUNNING", attempts=1, progress=progress), NOW)
    assert shown is not None
    assert (shown.share, shown.percent, shown.text, shown.rest) == (None, "", "1,200 rows", "")


def test_lists_show_it_of_running_jobs_only() -> None:
    assert progress_words(job("RUNNING", attempts=1, progress=HALF)) == "50%, 20 of 40 <files>"
    assert progress_words(job("RETRYING", attempts=1, progress=HALF)) == ""


@each_row("job_id, is_notified", [("a", True), ("b", False), (None, False)])
async def test_progress_refreshes_the_page_of_its_job_alone(job_id: str | None, is_notified: bool) -> None:
    listener = Listener(job_id)
    running = pulse.JobStatus.RUNNING
    change = pulse.Transition("a", "copy", running, 1, "w1", None, NOW, HALF)
    listener.notify(pulse.Transitions((change,), 0))
    try:
        async with asyncio.timeout(timedelta(milliseconds=1).total_seconds()):
            notified = await anext(listener.changes())
    except TimeoutError:
        notified = False
    assert notified is is_notified
