"""Pages require a login, and changes require our origin, a token and permission."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from starlette.routing import Route

from pulse_ui import tuning
from pulse_ui.app import Dashboard
from pulse_ui.settings import Settings
from pulse_ui.web.sessions import OpenAccount
from tests.eventually import PATIENCE_SECONDS
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test
from tests.ui.visitors import Visitor

NOTHING = "00000000-0000-7000-8000-000000000000"
ROUTES = [route for route in Dashboard(Settings()).app.routes if isinstance(route, Route)]
PUBLIC = {"/login", "/static/{name}", "/healthz"}


def paths(method: str) -> list[str]:
    return [route.path for route in ROUTES if method in (route.methods or ())]


def address(path: str) -> str:
    return re.sub(r"\{\w+_id\}", NOTHING, path).replace("{number}", "1")


CHANGES = [path for path in paths("POST") if path != "/login"]
PAGES = [path for path in paths("GET") if path not in PUBLIC]


@pytest_asyncio.fixture(loop_scope="session")
async def admin(guarded: DashboardUnderTest) -> Visitor:
    visitor = Visitor(guarded.url)
    await visitor.log_in("admin")
    return visitor


async def test_every_page_but_the_login_requires_a_login(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    answers = {path: await visitor.get(address(path)) for path in PAGES}
    assert {path: (answer.status, answer.location.partition("?")[0]) for path, answer in answers.items()} == (
        dict.fromkeys(PAGES, (303, "/login"))
    )


async def test_no_change_happens_without_a_login(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.get("/login")
    answers = {path: await visitor.post(address(path)) for path in CHANGES}
    assert {path: answer.location.partition("?")[0] for path, answer in answers.items()} == (
        dict.fromkeys(CHANGES, "/login")
    )


@each_row(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": None},
        {"origin": None, "referer": "https://evil.example/page"},
        {"origin": None, "referer": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_no_change_happens_for_the_page_of_another_site(
    admin: Visitor, headers: dict[str, str | None]
) -> None:
    answers = {path: await admin.post(address(path), headers=headers) for path in [*CHANGES, "/login"]}
    assert {path: answer.status for path, answer in answers.items()} == dict.fromkeys(
        [*CHANGES, "/login"], 403
    )


@each_row("token", ["", "x" * 43, "é"])
async def test_no_change_happens_without_the_token_of_the_session(admin: Visitor, token: str) -> None:
    answers = {path: await admin.post(address(path), token=token) for path in CHANGES}
    assert {path: answer.status for path, answer in answers.items()} == dict.fromkeys(CHANGES, 403)


async def test_token_of_another_session_is_refused(admin: Visitor, guarded: DashboardUnderTest) -> None:
    other = Visitor(guarded.url)
    await other.log_in("operator")
    answer = await admin.post("/dispatch/pause", [("scope", "everything")], token=other.token)
    assert answer.status == 403
    async with guarded.client("admin") as client:
        assert not (await client.dispatch_status()).paused


async def test_token_of_the_session_lets_the_change_happen(
    admin: Visitor, guarded: DashboardUnderTest
) -> None:
    answer = await admin.post("/dispatch/pause", [("scope", "everything"), ("reason", "a drill")])
    assert answer.status == 303
    async with guarded.client("admin") as client:
        assert (await client.dispatch_status()).reason == "a drill"


async def test_viewer_may_look_and_change_nothing(
    guarded: DashboardUnderTest, guarded_server: ServerUnderTest
) -> None:
    viewer = Visitor(guarded.url)
    await viewer.log_in("viewer")
    of_the_visitor_alone = {"/logout", "/theme", "/operations/{number}/stop"}
    answers = {path: await viewer.post(address(path)) for path in CHANGES if path not in of_the_visitor_alone}
    assert {answer.status for answer in answers.values()} == {403}
    assert "The role viewer is not permitted to do this" in answers["/dispatch/pause"].text


async def test_read_only_dashboard_changes_nothing_for_an_admin(server: ServerUnderTest) -> None:
    async with dashboard_under_test(server.address, read_only=True) as dashboard:
        visitor = Visitor(dashboard.url)
        await visitor.get("/")
        answer = await visitor.post("/dispatch/pause", [("scope", "everything")])
        assert (answer.status, "is read-only" in answer.text) == (403, True)


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(dashboard: DashboardUnderTest) -> AsyncIterator[Visitor]:
    """A visitor of an open dashboard."""
    visitor = Visitor(dashboard.url)
    await visitor.get("/")
    yield visitor


async def test_dashboard_without_login_refuses_names_of_other_sites(visitor: Visitor) -> None:
    answer = await visitor.get("/", headers={"host": "evil.example"})
    assert (answer.status, "evil.example" in answer.text) == (421, True)


@each_row("host", ["localhost:80@evil.example", "localhost:80/evil?", "localhost:[", "[::1", "["])
async def test_invalid_host_is_refused(visitor: Visitor, host: str) -> None:
    assert (await visitor.get("/", {"host": host})).status == 400


async def test_host_may_not_be_markup(visitor: Visitor) -> None:
    answer = await visitor.get("/", headers={"host": "<script>alert(1)<b>"})
    assert (answer.status, "<script>alert" in answer.text) == (421, False)


@each_row(
    "body, headers, status",
    [
        (b"csrf=x", {"content-type": "application/json"}, 415),
        (b"csrf=" + b"x" * (2 * 1024 * 1024), {}, 413),
        (b"csrf=%FF", {}, 400),
        (b"&".join(b"a=1" for _ in range(3000)), {}, 400),
    ],
)
async def test_body_that_is_not_a_form_is_refused(
    visitor: Visitor, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert (await visitor.post("/dispatch/pause", headers=headers, body=body)).status == status


async def test_every_response_has_the_security_headers(visitor: Visitor) -> None:
    for path in ("/", "/nowhere", "/healthz", "/login", "/static/pulse.css"):
        headers = (await visitor.get(path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


async def test_files_are_cached_and_pages_are_not(visitor: Visitor) -> None:
    assert (await visitor.get("/")).headers["cache-control"] == "no-store"
    assert "immutable" in (await visitor.get("/static/pulse.css")).headers["cache-control"]


@each_row(
    "path",
    [
        "/nowhere",
        "/static/nothing.css",
        "/static/..%2fmain.py",
        "/static/pages.py",
        "/static/job.html",
        "/operations/99",
        f"/operations/{'9' * 5_000}",
        # Not a redirect: that would lead to whatever host the request names.
        "/jobs/",
    ],
)
async def test_unknown_path_is_not_found(visitor: Visitor, path: str) -> None:
    assert (await visitor.get(path)).status == 404


async def test_form_that_does_not_arrive_is_not_waited_for(
    guarded: DashboardUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "FORM_TIMEOUT", timedelta(seconds=0.1))
    visitor = Visitor(guarded.url)
    await visitor.get("/login")
    promised = {"content-length": "1000"}
    answer = await visitor.post("/login", headers=promised, body=b"csrf=")
    assert (answer.status, "took too long" in answer.text) == (408, True)


@pytest.mark.parametrize("beginning", [b"", b"GET / HT"])
async def test_connection_without_a_whole_request_is_closed(
    guarded: DashboardUnderTest, monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    monkeypatch.setattr(tuning, "REQUEST_TIMEOUT", timedelta(seconds=0.1))
    parts = urlsplit(guarded.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(beginning)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await reader.read()  # until the other side closes
    writer.close()


async def test_first_visitors_of_an_open_server_share_one_account(server: ServerUnderTest) -> None:
    account = OpenAccount(server.address)
    first, second = await asyncio.gather(account.get(), account.get())
    await account.close()
    assert first is second is not None
