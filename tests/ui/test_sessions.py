"""How a session ends, and what becomes of what its user was doing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pulse_ui import tuning
from tests.transport.authorized import PASSWORD
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test
from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test, pass_time
from tests.ui.visitors import Visitor

LIVE = {"pulse-live": "1"}


async def logged_in(dashboard: DashboardUnderTest, user: str = "admin") -> Visitor:
    visitor = Visitor(dashboard.url)
    await visitor.log_in(user)
    return visitor


async def test_session_ends_when_its_user_does_nothing_for_long(guarded: DashboardUnderTest) -> None:
    visitor = await logged_in(guarded)
    pass_time(guarded, tuning.SESSION_IDLE + timedelta(seconds=1))
    assert (await visitor.get("/")).location == "/login"


async def test_session_goes_on_while_its_user_does_something(guarded: DashboardUnderTest) -> None:
    visitor = await logged_in(guarded)
    pass_time(guarded, tuning.SESSION_IDLE * 0.9)
    assert (await visitor.get("/")).status == 200
    pass_time(guarded, tuning.SESSION_IDLE * 1.8)
    assert (await visitor.get("/")).status == 200


async def test_page_that_refreshes_itself_does_not_keep_the_session_alive(
    guarded: DashboardUnderTest,
) -> None:
    visitor = await logged_in(guarded)
    pass_time(guarded, tuning.SESSION_IDLE * 0.9)
    assert (await visitor.get("/", LIVE)).status == 200
    pass_time(guarded, tuning.SESSION_IDLE + timedelta(seconds=1))
    assert (await visitor.get("/", LIVE)).status == 401


async def test_session_ends_after_half_a_day_however_busy(guarded: DashboardUnderTest) -> None:
    visitor = await logged_in(guarded)
    for quarter in range(1, 48):
        pass_time(guarded, timedelta(minutes=15 * quarter))
        assert (await visitor.get("/login")).location == "/"
    pass_time(guarded, tuning.SESSION_LONGEST + timedelta(seconds=1))
    assert (await visitor.get("/")).location == "/login"


async def test_change_after_the_session_ended_is_refused(guarded: DashboardUnderTest) -> None:
    visitor = await logged_in(guarded)
    pass_time(guarded, tuning.SESSION_IDLE * 2)
    answer = await visitor.post(
        "/dispatch/pause", [("scope", "everything")], {"referer": f"{guarded.url}/dispatch"}
    )
    assert answer.location == "/login?next=%2Fdispatch&ended=change"
    assert "nothing was changed" in (await visitor.get(answer.location)).text
    async with guarded.client("admin") as client:
        assert not (await client.dispatch_status()).paused


async def test_user_who_was_removed_is_out(
    database_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "IDENTITY_AGE", timedelta())
    users = tmp_path / "users"
    users.write_text(f"admin:{PASSWORD}\nann:{PASSWORD}:operator\n")
    async with (
        server_under_test(database_dsn, users_file=users) as server,
        dashboard_under_test(server.address) as dashboard,
    ):
        visitor = await logged_in(dashboard, "ann")
        assert (await visitor.get("/")).status == 200
        users.write_text(f"admin:{PASSWORD}\n")
        await read_users_again(server)
        assert (await visitor.get("/")).location == "/login"


async def test_role_that_changed_counts_at_once(
    database_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "IDENTITY_AGE", timedelta())
    users = tmp_path / "users"
    users.write_text(f"admin:{PASSWORD}\nann:{PASSWORD}:operator\n")
    async with (
        server_under_test(database_dsn, users_file=users) as server,
        dashboard_under_test(server.address) as dashboard,
    ):
        visitor = await logged_in(dashboard, "ann")
        users.write_text(f"admin:{PASSWORD}\nann:{PASSWORD}:viewer\n")
        await read_users_again(server)
        assert (await visitor.post("/dispatch/pause")).status == 403


async def read_users_again(server: ServerUnderTest) -> None:
    access = server.app.doors.access
    assert access is not None
    assert access.users_file is not None
    access.read_again()
    await access.users_file.loop.wait_for_ticks(1)
