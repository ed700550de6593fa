"""How the jobs of topics run, from a page: shown with its owners, set, and handed back."""

from __future__ import annotations

from datetime import timedelta

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.visitors import Visitor


async def declare(server: ServerUnderTest) -> None:
    policy = pb.DeclaredPolicy(topic="mail", run=pb.RunPolicy(max_attempts=8))
    await server.stub.DeclareTopicPolicies(
        pb.DeclareTopicPoliciesRequest(worker_id="mailer-1", policies=[policy])
    )


async def test_declared_policy_is_shown_with_its_worker(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    visitor = Visitor(dashboard.url)
    page = (await visitor.get("/policies")).text
    assert "No topic has its own policy" in page
    assert "Backoff: <strong>1s, then ×2, up to 2h, ±20%</strong>" in page
    await declare(server)
    page = (await visitor.get("/policies")).text
    assert "declared by the code: 8; the server’s setting: 25" in page
    assert 'Declared by <span class="mono">mailer-1</span>' in page
    assert "Hand back" not in page


async def test_policy_is_set_shown_and_handed_back(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await declare(server)
    visitor = Visitor(dashboard.url)
    entered = [("max_attempts", "40"), ("backoff", "first=2s,factor=3"), ("timeout", "2m")]
    await visitor.get("/policies")
    await visitor.post("/policies", [("topic", "mail"), *entered])
    async with pulse.Pulse(server.address) as client:
        (policy,) = await client.topic_policies()
        backoff = pulse.Backoff(first=timedelta(seconds=2), factor=3)
        assert policy.run == pulse.RunPolicy(backoff, 40, timedelta(minutes=2))
        page = (await visitor.get("/topics/mail")).text
        assert "2s, then ×3, up to 1h, ±20%" in page
        assert "set by an operator: 40; declared by the code: 8" in page
        assert "Empty: declared by the code: 8" in page
        assert 'value="first=2s,factor=3,longest=1h,jitter=0.2"' in page
        await visitor.post("/policies", [("topic", "mail"), ("back", "/policies")])
        (policy,) = await client.topic_policies()
        assert (policy.run, policy.effective.max_attempts) == (pulse.RunPolicy(), 8)
        page = (await visitor.get("/policies")).text
        assert "Handed back: what its workers declare decides for mail again." in page


@each_row(
    "field, text, sentence",
    [
        ("topic", " ", "Enter a topic"),
        ("max_attempts", "many", "Attempts: &#39;many&#39; is not a whole number"),
        ("max_crashes", "0", "max_crashes is 0"),
        ("timeout", "soon", "Time limit: &#39;soon&#39; is not a duration"),
        ("backoff", "fast", "Backoff: &#39;fast&#39; is not a backoff"),
        ("backoff", "first=2h,longest=1h", "is shorter than first"),
    ],
)
async def test_entry_that_cannot_be_meant_changes_nothing(
    server: ServerUnderTest, dashboard: DashboardUnderTest, field: str, text: str, sentence: str
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get("/policies")
    await visitor.post("/policies", [("topic", "mail"), (field, text), ("back", "/policies")])
    assert sentence in (await visitor.get("/policies")).text
    async with pulse.Pulse(server.address) as client:
        assert not len(await client.topic_policies())


async def test_topic_with_a_run_policy_alone_has_no_retention_of_its_own(
    server: ServerUnderTest, dashboard: DashboardUnderTest
) -> None:
    await declare(server)
    assert "No topic has its own retention" in (await Visitor(dashboard.url).get("/retention")).text
