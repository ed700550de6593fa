"""The scenario of the dashboard measures every page, over a queue that has something for each."""

import re
from datetime import timedelta

import pytest
from starlette.routing import Route

import pulse
from benchmarks.busy_queue import busy_worker, fill_queue, ids_by_name
from benchmarks.scenarios.dashboard import PAGES
from pulse_ui import tuning
from pulse_ui.app import Dashboard
from pulse_ui.settings import Settings
from tests.transport.pulse_server_under_test import server_under_test
from tests.ui.dashboards import dashboard_under_test
from tests.ui.visitors import Visitor

# Files and streams, the login of servers with users, and the progress of an action.
NOT_MEASURED = {
    "/static/{name}",
    "/healthz",
    "/login",
    "/events",
    "/jobs/{job_id}/payload",
    "/jobs/{job_id}/result",
    "/operations/{number}",
    "/audit/{action_id}/undo",  # of an action, and counted in bounds
}
A_THOUSANDTH = 1_000


def test_every_page_is_measured() -> None:
    routes = [route for route in Dashboard(Settings()).app.routes if isinstance(route, Route)]
    shown = [route for route in routes if "GET" in (route.methods or ())]
    paths = [re.sub(r"[{}]", "", path.partition("?")[0]) for path in PAGES.values()]
    served = {next(route.path for route in shown if route.path_regex.match(path)) for path in paths}
    assert {route.path for route in shown} - served == NOT_MEASURED


async def test_every_measured_page_can_be_shown(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine may keep a call waiting for longer than a user should wait.
    monkeypatch.setattr(tuning, "CALL_TIMEOUT", timedelta(seconds=15))
    async with (
        server_under_test(database_dsn) as server,
        pulse.Pulse(server.address, user="", password="") as client,
        dashboard_under_test(server.address) as dashboard,
    ):
        await fill_queue(database_dsn, client, lambda rows: max(20 * 7, rows // A_THOUSANDTH))
        visitor = Visitor(dashboard.url)
        async with busy_worker(server.address):
            ids = await ids_by_name(database_dsn, client)
            answers = {path: await visitor.get(path.format(**ids)) for path in PAGES.values()}
    # A search that finds one job leads to its page. Ids are random.
    shown = {path: (200, 303) if path.startswith("/find") else (200,) for path in answers}
    assert {path: answer.status for path, answer in answers.items() if answer.status not in shown[path]} == {}
