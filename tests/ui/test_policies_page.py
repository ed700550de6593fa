"""Retention of topics, from a page."""

from __future__ import annotations

from datetime import timedelta

import pulse
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


async def test_retention_of_a_topic_is_set_shown_and_returned(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    assert "COMPLETED 7d, CANCELED 7d, DEAD_LETTERED 30d" in (await visitor.get("/retention")).text
    await visitor.post("/retention", [("topic", "audit"), ("completed", "forever"), ("canceled", "12h")])
    async with pulse.Pulse(server.address) as client:
        (policy,) = await client.topic_policies()
        assert (policy.keep_completed, policy.keep_canceled) == ("forever", timedelta(hours=12))
        assert policy.keep_dead_lettered == "default"
        shown = (await visitor.get("/retention")).text
        assert "policy-audit" in shown
        assert "12h" in shown
        await visitor.post("/retention", [("topic", "audit"), ("completed", ""), ("canceled", "")])
        assert not len(await client.topic_policies())


async def test_retention_that_is_no_duration_changes_nothing(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get("/retention")
    await visitor.post("/retention", [("topic", "audit"), ("completed", "soon"), ("back", "/retention")])
    assert "is not a duration" in (await visitor.get("/retention")).text
    await visitor.post("/retention", [("topic", " "), ("completed", "1d"), ("back", "/retention")])
    assert "Enter a topic" in (await visitor.get("/retention")).text
    async with pulse.Pulse(server.address) as client:
        assert not len(await client.topic_policies())
