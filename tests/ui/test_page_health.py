"""Every page, full and empty: readable for everyone, at any width, in both themes, and safe to look at."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib.resources import files

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.postgres_cluster import Databases
from tests.transport.pulse_server_under_test import server_under_test
from tests.ui.browsers import Complaints
from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test
from tests.ui.furnishing import Furnished, furnished

PAGES = [
    "overview",
    "jobs",
    "jobs by filter",
    "search",
    "search for a field",
    "new job",
    "job to edit",
    "waiting job",
    "running job",
    "dead job",
    "canceled job",
    "suspended job",
    "completed job",
    "confirmation",
    "confirmation of all",
    "workflows",
    "workflow",
    "job that waits for jobs",
    "dead letters",
    "schedules",
    "schedule",
    "schedule to edit",
    "new schedule",
    "workers",
    "audit",
    "undo",
    "dispatch",
    "topics",
    "topic",
    "topic with lanes",
    "held topic",
    "paused topic",
    "limits of topics",
    "settings of topics",
    "missing page",
]
EMPTY_PAGES = [
    "/",
    "/jobs",
    "/jobs/new",
    "/find",
    "/find?q=nowhere",
    "/workflows",
    "/dead-letters",
    "/schedules",
    "/workers",
    "/dispatch",
    "/topics",
    "/topics?view=limits",
    "/topics?view=settings",
    "/topics/mail",
    "/audit",
]
WIDTHS = [360, 390, 1280, 2560]
# The rules of axe that depend on colors. The others find the same in the dark.
OF_COLORS = ["color-contrast", "link-in-text-block"]
SIGHTS = [(1280, "light"), (1280, "dark"), (390, "dark"), (390, "light")]

_AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
_VIOLATIONS = """async (rules) => {
    const options = {resultTypes: ["violations"], ...(rules && {runOnly: rules})};
    return (await axe.run(document, options)).violations.flatMap(
        (rule) => rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")} (${node.failureSummary})`));
}"""
_DOUBLE_IDS = """() => { const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
    return ids.filter((id, place) => ids.indexOf(id) !== place); }"""
_OVERFLOW = """() => document.documentElement.scrollWidth - document.documentElement.clientWidth"""


@pytest.fixture(scope="module")
def full_dsn(databases: Databases, template_database: str) -> Iterator[str]:
    with databases.temporary(template_database) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def empty_dsn(databases: Databases, template_database: str) -> Iterator[str]:
    with databases.temporary(template_database) as dsn:
        yield dsn


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def full(full_dsn: str) -> AsyncIterator[tuple[DashboardUnderTest, Furnished]]:
    async with (
        server_under_test(full_dsn) as server,
        furnished(server) as content,
        dashboard_under_test(server.address) as dashboard,
    ):
        yield dashboard, content


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def empty(empty_dsn: str) -> AsyncIterator[DashboardUnderTest]:
    async with server_under_test(empty_dsn) as server, dashboard_under_test(server.address) as dashboard:
        yield dashboard


async def violations(page: Page) -> dict[str, list[str]]:
    """What axe finds on a desk and on a phone, in light and in dark colors, by where."""
    await page.evaluate(_AXE)
    found = {}
    for width, scheme in SIGHTS:
        await page.set_viewport_size({"width": width, "height": 900})
        await page.emulate_media(color_scheme=scheme)
        if complaints := await page.evaluate(_VIOLATIONS, OF_COLORS if scheme == "dark" else None):
            found[f"{width} {scheme}"] = complaints
    return found


async def overflows(page: Page) -> dict[int, int]:
    """How many pixels the page is too wide, at the widths where it is."""
    found = {}
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 900})
        if beyond := await page.evaluate(_OVERFLOW):
            found[width] = beyond
    return found


@pytest.mark.parametrize("name", PAGES)
async def test_full_page_is_healthy(
    kept_page: Page, full: tuple[DashboardUnderTest, Furnished], complaints: Complaints, name: str
) -> None:
    dashboard, content = full
    assert set(PAGES) == content.pages.keys()
    if name == "missing page":
        complaints.expect("404")
    await kept_page.goto(dashboard.url + content.pages[name])
    await expect(kept_page.locator("h1")).to_have_count(1)
    assert await kept_page.evaluate(_DOUBLE_IDS) == []
    assert await violations(kept_page) == {}
    assert await overflows(kept_page) == {}


@pytest.mark.parametrize("path", EMPTY_PAGES)
async def test_empty_page_is_healthy(kept_page: Page, empty: DashboardUnderTest, path: str) -> None:
    await kept_page.goto(empty.url + path)
    await expect(kept_page.locator("h1")).to_have_count(1)
    assert await violations(kept_page) == {}
    assert await overflows(kept_page) == {}


async def test_login_is_healthy(page: Page, guarded: DashboardUnderTest) -> None:
    await page.goto(f"{guarded.url}/login")
    assert await violations(page) == {}
    assert await overflows(page) == {}
