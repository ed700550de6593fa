"""Pausing and resuming from a page."""

from __future__ import annotations

import pulse
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


async def test_pause_of_a_topic_holds_with_its_reason_until_it_is_resumed(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get("/dispatch")
    await visitor.post("/dispatch/pause", [("topic", "mail"), ("reason", "the provider is down")])
    async with pulse.Pulse(server.address) as client:
        assert (await client.dispatch_status()).topics["mail"].reason == "the provider is down"
        assert "the provider is down" in (await visitor.get("/dispatch")).text
        await visitor.post("/dispatch/resume", [("topic", "mail")])
        assert not (await client.dispatch_status()).topics


async def test_form_without_a_topic_does_not_pause_everything(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get("/dispatch")
    await visitor.post("/dispatch/pause", [("topic", " "), ("back", "/dispatch")])
    assert "Enter a topic" in (await visitor.get("/dispatch")).text
    async with pulse.Pulse(server.address) as client:
        assert not (await client.dispatch_status()).paused
        await visitor.post("/dispatch/pause", [("scope", "everything")])
        assert (await client.dispatch_status()).paused
