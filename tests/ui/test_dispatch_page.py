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


async def test_pause_of_everything_is_asked_with_the_jobs_that_it_concerns(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await server.submit_many(3, "mail")
    async with server.worker("w1", topics=["mail"], capacity=1) as worker:
        await worker.take(1)
        page = (await Visitor(dashboard.url).get("/dispatch")).text
    question = (
        "Pause all topics? 1 running job finishes. 2 ready jobs, and all that come, wait until you resume."
    )
    assert question in page


async def test_worker_is_quieted_with_a_reason_resumed_and_stopped(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    async with server.worker("w1", can_stop=True, run_id="run-1") as worker:
        page = (await visitor.get("/workers")).text
        assert 'id="quiet-worker-w1"' in page
        assert 'id="stopping-worker-w1"' in page
        fields = [("worker", "w1"), ("back", "/workers")]
        await visitor.post("/workers/state", [*fields, ("state", "quiet"), ("reason", "memory <grows>")])
        page = (await visitor.get("/workers")).text
        assert "w1 takes no further jobs" in page
        assert "Quiet</span>" in page
        assert "memory &lt;grows&gt;" in page
        assert 'id="quiet-worker-w1"' not in page
        await visitor.post("/workers/state", [*fields, ("state", "running")])
        page = (await visitor.get("/workers")).text
        assert "w1 takes jobs again" in page
        assert "Quiet</span>" not in page
        await visitor.post("/workers/state", [*fields, ("state", "")])
        assert "Choose what the worker is to do" in (await visitor.get("/workers")).text
        await visitor.post("/workers/state", [*fields, ("state", "stopping")])
        assert "Stopping</span>" in (await visitor.get("/workers")).text
        while not (await worker.message()).stop_worker:
            pass
