"""Schedules that have vanished from the code of their application, on the pages of schedules."""

from __future__ import annotations

from datetime import timedelta

import pulse
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


async def test_vanished_schedule_is_marked_with_the_way_to_delete_it(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    async with pulse.Pulse(server.address, application="shop.app") as p:
        made = await p.every("reports", timedelta(hours=1))
        await p.declare()
    visitor = Visitor(dashboard.url)
    assert "Not in the code" not in (await visitor.get("/schedules")).text
    assert "<dt>Declared by</dt><dd>shop.app</dd>" in (await visitor.get(f"/schedules/{made.id}")).text
    async with pulse.Pulse(server.address, application="shop.app") as p:
        await p.declare()
    assert "Not in the code" in (await visitor.get("/schedules")).text
    shown = (await visitor.get(f"/schedules/{made.id}")).text
    assert "pulse schedules prune --declared-by shop.app" in shown
