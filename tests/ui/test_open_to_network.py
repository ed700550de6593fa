"""A dashboard on the network does not serve a pulsed without users, unless configured to."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys

import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import dashboard_under_test
from tests.ui.visitors import Visitor

EVERYWHERE = "0.0.0.0"
# `pulse-ui` that waits for pulsed: if a busy one does not answer within two seconds, it starts to serve.
PATIENT = """
from datetime import timedelta
from pulse_ui import main, tuning
tuning.START_LOOK = tuning.CALL_TIMEOUT = timedelta(seconds=40)
raise SystemExit(main.main())
"""


@pytest.mark.parametrize("path", ["/", "/jobs", "/dispatch"])
async def test_visitor_from_the_network_is_refused(server: ServerUnderTest, path: str) -> None:
    async with dashboard_under_test(server.address, host=EVERYWHERE) as dashboard:
        answer = await Visitor(dashboard.url).get(path, {"host": "127.0.0.1"})
    assert answer.status == 403
    assert "--insecure-open-to-network" in answer.text


async def test_change_by_a_passer_by_does_not_happen(server: ServerUnderTest) -> None:
    async with dashboard_under_test(server.address, host=EVERYWHERE) as dashboard:
        visitor = Visitor(dashboard.url)
        await visitor.get("/")
        assert (await visitor.post("/dispatch/pause")).status == 403
    status = await server.stub.GetDispatchStatus(pb.GetDispatchStatusRequest())
    assert not status.paused


async def test_open_dashboard_that_was_asked_for_serves(server: ServerUnderTest) -> None:
    async with dashboard_under_test(server.address, host=EVERYWHERE, open_to_network=True) as dashboard:
        assert (await Visitor(dashboard.url).get("/")).status == 200


async def test_dashboard_of_a_server_with_users_asks_for_a_login(guarded_server: ServerUnderTest) -> None:
    async with dashboard_under_test(guarded_server.address, host=EVERYWHERE) as dashboard:
        answer = await Visitor(dashboard.url).get("/")
    assert (answer.status, answer.location) == (303, "/login")


async def test_command_refuses_to_start_and_says_what_to_do(server: ServerUnderTest) -> None:
    arguments = ("--addr", f"{EVERYWHERE}:0", "--server", server.address)
    answer = await asyncio.to_thread(_refusal, *arguments)
    assert answer.returncode == 1
    assert "pulsed has no users" in answer.stderr
    assert "--insecure-open-to-network" in answer.stderr
    assert "Traceback" not in answer.stderr


def _refusal(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PATIENT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


async def test_command_starts_where_the_risk_is_named(server: ServerUnderTest) -> None:
    arguments = ("--addr", f"{EVERYWHERE}:0", "--server", server.address, "--insecure-open-to-network")
    assert await asyncio.to_thread(_first_line, *arguments)


def _first_line(*arguments: str) -> bool:
    command = [sys.executable, "-m", "pulse_ui", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            return any(re.search("The dashboard is at http", line) for line in process.stderr)
        finally:
            process.kill()
