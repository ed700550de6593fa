"""Logging in and out: cookies, keys, wrong passwords."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from pulse_ui import tuning
from tests.rows import each_row
from tests.transport.authorized import PASSWORD
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test
from tests.ui.visitors import Visitor


@each_row(
    "target",
    ["//evil.example", "https://evil.example", "/\\evil.example", "/\tevil", "javascript:alert(1)", "evil"],
)
async def test_login_does_not_redirect_to_another_site(guarded: DashboardUnderTest, target: str) -> None:
    visitor = Visitor(guarded.url)
    await visitor.get("/login")
    answer = await visitor.post("/login", [("user", "admin"), ("password", PASSWORD), ("next", target)])
    assert (answer.status, answer.location) == (303, "/")


async def test_cookie_is_out_of_reach_for_scripts_and_other_sites(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    cookie = (await visitor.get("/login")).headers["set-cookie"]
    assert {"HttpOnly", "SameSite=lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}


async def test_https_binds_the_cookie_to_the_host_and_to_https(
    guarded_server: ServerUnderTest, tmp_path: Path
) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    pair.cert_chain_pems[0].write_to_path(certificate)
    pair.private_key_pem.write_to_path(key)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    async with dashboard_under_test(
        guarded_server.address, tls_certificate=certificate, tls_key=key
    ) as dashboard:
        visitor = Visitor(dashboard.url, trust)
        cookie = (await visitor.get("/login")).headers["set-cookie"]
        assert cookie.startswith("__Host-pulse-session=")
        assert "Secure" in cookie
        assert (await visitor.log_in("admin")).location == "/"
        assert (await visitor.get("/")).status == 200


async def test_proxy_in_front_is_who_browsers_see(guarded_server: ServerUnderTest) -> None:
    async with dashboard_under_test(
        guarded_server.address, public_url="https://jobs.example.com"
    ) as dashboard:
        visitor = Visitor(dashboard.url)
        seen = {"host": "jobs.example.com"}
        assert "Secure" in (await visitor.get("/login", seen)).headers["set-cookie"]
        form = [("user", "admin"), ("password", PASSWORD)]
        ours, foreign = {"origin": "https://jobs.example.com"}, {"origin": "http://jobs.example.com"}
        assert (await visitor.post("/login", form, seen | foreign)).status == 403
        assert (await visitor.post("/login", form, seen | ours)).location == "/"


@pytest.fixture
def no_further_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes to check the passwords."""
    monkeypatch.setattr(tuning, "LOGIN_TRY_EVERY", timedelta(hours=1))


async def test_login_begins_under_a_new_key(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.get("/login")
    before = dict(visitor.cookies)
    await visitor.log_in("admin")
    assert visitor.cookies.keys() == before.keys()
    assert visitor.cookies != before


async def test_key_of_a_session_that_was_logged_out_is_worth_nothing(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.log_in("admin")
    stolen = dict(visitor.cookies)
    await visitor.post("/logout")
    visitor.cookies = stolen
    assert (await visitor.get("/")).location == "/login"


@pytest.mark.usefixtures("no_further_tries")
async def test_wrong_password_is_reported_and_then_throttled(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.get("/login")
    answers = [
        await visitor.post("/login", [("user", "admin"), ("password", "wrong-horse")]) for _ in range(11)
    ]
    assert {answer.status for answer in answers[: tuning.LOGIN_TRIES]} == {403}
    assert answers[-1].status == 429
    assert not any("wrong-horse" in answer.text for answer in answers)


@pytest.mark.usefixtures("no_further_tries")
async def test_concurrent_wrong_passwords_are_throttled_too(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.get("/login")
    # Each for another user: pulsed holds back by user too, and later.
    answers = await asyncio.gather(
        *(
            visitor.post("/login", [("user", f"user-{number}"), ("password", "wrong-horse")])
            for number in range(2 * tuning.LOGIN_TRIES)
        )
    )
    assert sum("Too many wrong passwords" in answer.text for answer in answers) == tuning.LOGIN_TRIES


@pytest.mark.usefixtures("no_further_tries")
async def test_visitor_cannot_say_where_they_come_from(guarded: DashboardUnderTest) -> None:
    visitor = Visitor(guarded.url)
    await visitor.get("/login")
    form = [("user", "unknown"), ("password", "wrong-horse")]
    answers = [
        await visitor.post("/login", form, {"x-forwarded-for": f"192.0.2.{number}"})
        for number in range(tuning.LOGIN_TRIES + 1)
    ]
    assert "Too many wrong passwords" in answers[-1].text
