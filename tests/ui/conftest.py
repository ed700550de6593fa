"""One browser for all tests of the dashboard, and a server and a dashboard for each."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from pulse_ui import tuning
from tests.eventually import PATIENCE_SECONDS
from tests.ports import reserved_address
from tests.transport.authorized import PASSWORD, USERS
from tests.transport.pulse_server_under_test import SECOND, ServerUnderTest, server_under_test
from tests.ui.browsers import VIEWPORT, Complaints, chromium_path, close_pages, new_context, new_page
from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test

# As text: to compare paths of several thousand tests takes a third of a second.
_HERE = f"{Path(__file__).parent}{os.sep}"

# A page refreshes itself every five seconds, and machines that run tests are busy.
expect.set_options(timeout=PATIENCE_SECONDS * 1_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests on one loop: the browser belongs to it, and starting one takes longer than a test."""
    for item in items:
        if str(item.path).startswith(_HERE) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = chromium_path()
    async with async_playwright() as playwright:
        # No sandbox: it cannot be had as root, and only our own pages are opened.
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A browser of one's own: no cookies, nothing cached."""
    context = await new_context(browser)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, complaints: Complaints) -> AsyncIterator[Page]:
    """A page. Whatever the browser complains about in it fails the test."""
    page = await new_page(context, complaints)
    yield page
    await close_pages()
    assert complaints.unexpected() == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page_of_the_file(browser: Browser) -> AsyncIterator[Page]:
    context = await new_context(browser)
    yield await context.new_page()
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def kept_page(page_of_the_file: Page, complaints: Complaints) -> AsyncIterator[Page]:
    """A page that tests have in turn which go somewhere and only look: a new one takes as long as they do."""
    page = page_of_the_file
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(VIEWPORT)
    complaints.follow(page)
    yield page
    complaints.leave(page)
    assert complaints.unexpected() == []


@pytest_asyncio.fixture(loop_scope="session")
async def server(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServerUnderTest]:
    """An open server, whose retries are due at once when their time has come.

    No lease ends in a test: a worker of plain calls sends no heartbeats, and a busy machine takes its time.
    """
    monkeypatch.setattr("pulse_server.work.PROMOTE_INTERVAL", 0.05 * SECOND)
    async with server_under_test(database_dsn, lease_ttl=600 * SECOND) as running:
        yield running


@pytest.fixture
def kept_address() -> Iterator[str]:
    """An address that no other process gets while the test has no server there."""
    with reserved_address() as address:
        yield address


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may keep a call waiting for longer than a user should wait."""
    monkeypatch.setattr(tuning, "CALL_TIMEOUT", 15 * SECOND)


@pytest.fixture
def lively(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dashboard whose pages refresh more often."""
    monkeypatch.setattr(tuning, "REFRESH_SECONDS", 1)


@pytest.fixture
def impatient(patient: None, lively: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And which waits less for a pulsed that does not answer: for tests that take pulsed away."""
    monkeypatch.setattr(tuning, "CALL_TIMEOUT", 1 * SECOND)


@pytest_asyncio.fixture(loop_scope="session")
async def dashboard(server: ServerUnderTest) -> AsyncIterator[DashboardUnderTest]:
    """The dashboard of the open server."""
    async with dashboard_under_test(server.address) as running:
        yield running
        await close_pages()


@pytest_asyncio.fixture(loop_scope="session")
async def guarded_server(database_dsn: str) -> AsyncIterator[ServerUnderTest]:
    """A server with one user per role, named after it."""
    async with server_under_test(database_dsn, users=USERS) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def guarded(guarded_server: ServerUnderTest) -> AsyncIterator[DashboardUnderTest]:
    """The dashboard of the server with users."""
    async with dashboard_under_test(guarded_server.address) as running:
        yield running
        await close_pages()


async def log_in(page: Page, dashboard: DashboardUnderTest, user: str, password: str = PASSWORD) -> None:
    await page.goto(f"{dashboard.url}/login")
    await page.get_by_label("User").fill(user)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in").click()
