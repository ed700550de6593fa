"""A real dashboard in the test's own process, for a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pulse
from pulse_ui.app import Dashboard, Server, listen
from pulse_ui.settings import Settings
from tests.transport.authorized import PASSWORD


@dataclass(frozen=True)
class DashboardUnderTest:
    dashboard: Dashboard
    url: str
    server_address: str

    def client(self, user: str | None = None) -> pulse.Pulse:
        """The SDK, for what a test does besides the browser. Close it, or use `async with`."""
        if user is None:
            return pulse.Pulse(self.server_address, user="", password="")
        return pulse.Pulse(self.server_address, user=user, password=PASSWORD)


@asynccontextmanager
async def dashboard_under_test(server_address: str, **settings: Any) -> AsyncIterator[DashboardUnderTest]:
    """Serve a dashboard on a free port for the length of the block."""
    chosen = Settings(**({"port": 0, "server": server_address} | settings))
    listener = listen(chosen)
    chosen = replace(chosen, port=listener.getsockname()[1])
    dashboard = Dashboard(chosen)
    server = Server(dashboard, handles_signals=False)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield DashboardUnderTest(dashboard, chosen.address, server_address)
    finally:
        server.stop()
        await serving


def pass_time(dashboard: DashboardUnderTest, span: timedelta) -> None:
    """Let that much time go by for the sessions."""
    ahead = span.total_seconds()
    dashboard.dashboard.sessions._clock = lambda: time.monotonic() + ahead
