"""Limits and lanes, from a page: shown with their owners, set, held, and returned to the code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest_asyncio

import pulse
from pulse.v1 import pulse_pb2 as pb
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest, dashboard_under_test
from tests.ui.visitors import Visitor

TOPIC = "/topics/mail"


@pytest_asyncio.fixture(loop_scope="session")
async def client(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, user="", password="") as client:
        yield client


async def declare(server: ServerUnderTest, worker: str, limit: int) -> None:
    policy = pb.DeclaredPolicy(topic="mail", limits=pb.LimitPolicy(limit=limit, per_lane=2))
    await server.stub.DeclareTopicPolicies(
        pb.DeclareTopicPoliciesRequest(worker_id=worker, policies=[policy])
    )


async def test_limits_are_shown_with_who_says_so(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    visitor = Visitor(dashboard.url)
    assert "No topic has limits" in (await visitor.get("/limits")).text
    await declare(server, "mailer-1", 10)
    await declare(server, "mailer-2", 20)
    await client.set_limits("mail", rate=pulse.Rate(100, per=timedelta(minutes=1)))
    page = (await visitor.get("/limits")).text
    assert "0 of 10" in page
    assert "0 of 100/min" in page
    assert "workers differ" in page
    page = (await visitor.get(TOPIC)).text
    assert "Workers declare different limits" in page
    assert '<span class="mono">mailer-2</span>: running at once 20, per lane 2' in page
    assert '10 <span class="policy-source code">code</span></td><td>–</td><td>10</td>' in page
    assert "100/min</td><td>–</td>" in page


async def test_limits_are_set_and_returned_to_the_code(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await declare(server, "mailer-1", 10)
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    entered = [("limit", "4"), ("rate", "50/min"), ("ordered", "yes"), ("per_lane", "1"), ("aging", "5m")]
    await visitor.post("/limits", [("topic", "mail"), *entered])
    (known,) = await client.limits()
    assert known.override == pulse.LimitPolicy(
        limit=pulse.Concurrency(4),
        rate=pulse.Rate(50, per=timedelta(minutes=1)),
        per_lane=pulse.Concurrency(1),
        ordered=True,
        aging=timedelta(minutes=5),
    )
    page = (await visitor.get(TOPIC)).text
    assert "Saved the limits of mail." in page
    assert 'name="limit" value="4"' in page
    assert "Declared by the code: 10" in page
    await visitor.post("/limits", [("topic", "mail")])
    (known,) = await client.limits()
    assert (known.override, known.policy.limit) == (pulse.LimitPolicy(), pulse.Concurrency(10))
    assert "what its workers declare decides for mail again" in (await visitor.get(TOPIC)).text


async def test_pending_limits_are_shown_with_what_they_wait_for(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse, database_dsn: str
) -> None:
    visitor, shop = Visitor(dashboard.url), await asyncpg.connect(database_dsn)
    async with server.worker() as worker, shop.transaction():
        await server.submit()
        await worker.take_one()
        await shop.execute("SELECT FROM pulse.jobs FOR UPDATE")

        await visitor.get(TOPIC)
        answer = await visitor.post("/limits", [("topic", "mail"), ("limit", "4")])

        clause = f"in force once pid {shop.get_server_pid()} "
        assert f"The limits of mail are accepted, {clause}" in (await visitor.get(TOPIC)).text + answer.text
        policy = await client.set_limits("mail", limit=pulse.Concurrency(5))
        (known,) = await client.limits()
        assert policy.limits_pending.startswith(clause)
        assert (known.pending, known.policy) == (policy.limits_pending, pulse.LimitPolicy())
        page = (await visitor.get(TOPIC)).text
        assert f"pending</span> The last change is accepted, {clause}" in page
        assert "This topic has no limits" in page
        assert "pending</span>" in (await visitor.get("/limits")).text
    await shop.close()
    await server.app.policies.limits.apply()
    assert "The last change is accepted" not in (await visitor.get(TOPIC)).text
    assert " of 5" in (await visitor.get("/limits")).text


async def test_topic_without_limits_can_be_given_some(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    visitor = Visitor(dashboard.url)
    assert "This topic has no limits" in (await visitor.get(TOPIC)).text
    await visitor.post("/limits", [("topic", "mail"), ("limit", "3"), ("pool", "shared")])
    (known,) = await client.limits()
    assert (known.policy.limit, known.policy.pool) == (pulse.Concurrency(3), "shared")
    await visitor.post("/limits", [("topic", "mail")])
    assert "nothing limits mail any more" in (await visitor.get(TOPIC)).text


async def test_topic_is_held_and_the_hold_is_ended(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await client.set_limits("mail", limit=pulse.Concurrency(3))
    job = await client.enqueue("mail", {})
    visitor = Visitor(dashboard.url)
    assert "End the hold" not in (await visitor.get(TOPIC)).text
    await visitor.post("/limits/hold", [("topic", "mail"), ("for", "2m"), ("back", TOPIC)])
    page = (await visitor.get(TOPIC)).text
    assert "mail is held for 2 min." in page
    assert "Held until" in page
    assert "Held" in (await visitor.get("/limits")).text
    assert "No worker that takes &#39;mail&#39; is connected." in (await visitor.get(f"/jobs/{job.id}")).text
    await visitor.post("/limits/hold", [("topic", "mail"), ("for", "0s"), ("back", TOPIC)])
    (known,) = await client.limits()
    assert known.held_until is None


async def test_lanes_are_shown_by_wait_and_by_share_and_weighed(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await client.set_limits("mail", limit=pulse.Concurrency(2), per_lane=pulse.Concurrency(2))
    for lane in ("big", "big", "big", "small"):
        await client.enqueue("mail", {}, lane=lane)
    visitor = Visitor(dashboard.url)
    async with server.worker("mailer-1", topics=["mail"], capacity=2) as worker:
        taken = await worker.take(2)
        lanes = {job.lane for job in taken}
        waiting = await client.enqueue("mail", {}, lane="big")
        page = (await visitor.get(f"{TOPIC}?lanes=share")).text
        assert '<a href="/jobs?topic=mail&amp;lane=small">small</a>' in page
        listed = (await visitor.get("/jobs?topic=mail&lane=small")).text
        assert ('title="Lane">small</span>' in listed, 'title="Lane">big</span>' in listed) == (True, False)
        assert 'href="/topics/mail?lanes=share#lanes" aria-current="true"' in page
        assert "100%" in page if len(lanes) == 1 else "50%" in page
        await visitor.post(
            "/limits/lane",
            [("topic", "mail"), ("lane", "big"), ("weight", "3"), ("limit", "1"), ("confirmed", "yes")],
        )
        (big,) = [lane for lane in await client.lanes("mail") if lane.lane == "big"]
        assert (big.weight, big.limit) == (3, 1)
        page = (await visitor.get(TOPIC)).text
        assert "Saved the lane big." in page
        assert '3 <span class="policy-source operator">operator</span>' in page
        page = (await visitor.get(f"/jobs/{waiting.id}")).text
        assert "<dt>Lane</dt>" in page
        assert "Its lane big is at its limit: " in page
        assert 'title="Lane">big</span>' in (await visitor.get("/jobs?topic=mail")).text


async def test_limit_that_stops_what_runs_asks_first(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    """A limit, the limits of the code, one of a lane, and a hold: the answer is the same form once more."""
    await client.set_limits("mail", limit=pulse.Concurrency(5), per_lane=pulse.Concurrency(5))
    await declare(server, "mailer-1", 1)
    for _ in range(3):
        await client.enqueue("mail", {}, lane="big")
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    async with server.worker("mailer-1", topics=["mail"], capacity=3) as worker:
        await worker.take(3)
        for path, fields, sentence in (
            ("/limits", [("limit", "2"), ("per_lane", "5")], "3 jobs run on mail now. With a limit of 2"),
            ("/limits", [], "With a limit of 1 they go on, and no other starts before 3 have ended."),
            ("/limits", [("limit", "5"), ("per_lane", "2")], "3 jobs run on the lane &#39;big&#39; now."),
            ("/limits/lane", [("lane", "big"), ("limit", "2")], "no other starts before 2 have ended."),
            ("/limits/hold", [("for", "2m")], "Hold mail for 2m? 3 running jobs finish."),
        ):
            before = await client.limits(), await client.lanes("mail")
            answer = await visitor.post(path, [("topic", "mail"), *fields, ("back", TOPIC)])
            assert sentence in answer.text
            assert f'action="{path}" method="post"' in answer.text
            assert '<input type="hidden" name="confirmed" value="yes">' in answer.text
            assert (await client.limits(), await client.lanes("mail")) == before
        for fields in ([("limit", "3")], [("limit", "2"), ("confirmed", "yes")]):
            answer = await visitor.post("/limits", [("topic", "mail"), ("per_lane", "5"), *fields])
            assert answer.status == 303
        (known,) = await client.limits()
        assert known.override.limit == pulse.Concurrency(2)


async def test_limit_of_a_pool_counts_the_jobs_of_all_its_topics(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await client.set_limits("sms", limit=pulse.Concurrency(9), pool="provider")
    await client.set_limits("mail", limit=pulse.Concurrency(9))
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    for topic in ("mail", "sms", "sms"):
        await client.enqueue(topic, {})
    async with server.worker("mailer-1", topics=["mail", "sms"], capacity=3) as worker:
        await worker.take(3)
        joined = [("topic", "mail"), ("limit", "2"), ("pool", "provider")]
        answer = await visitor.post("/limits", joined)
        assert "3 jobs run on the pool provider now. With a limit of 2" in answer.text
        answer = await visitor.post("/limits", [("topic", "mail"), ("limit", "2")])
        assert answer.status == 303, "alone, one job of mail runs"


@each_row(
    "path, fields, sentence",
    [
        ("/limits", {"topic": " "}, "Enter a topic."),
        ("/limits", {"limit": "many"}, "Running at once: &#39;many&#39; is not a whole number from 1"),
        ("/limits", {"limit": "0"}, "Running at once: &#39;0&#39; is not a whole number from 1"),
        ("/limits", {"per_lane": "9" * 40}, "is not a whole number from 1 to 1,000,000."),
        ("/limits", {"rate": "fast"}, "Rate: &#39;fast&#39; is not a rate"),
        ("/limits", {"rate": "1/1ms"}, "is out of bounds: from 1 to 1,000,000 starts"),
        ("/limits", {"lane_rate": "0/s"}, "Lane rate: &#39;0/s&#39; is out of bounds"),
        ("/limits", {"turns": "maybe"}, "Turns: &#39;maybe&#39; is neither yes nor no."),
        ("/limits", {"aging": "soon"}, "Aging: &#39;soon&#39; is not a duration"),
        ("/limits", {"aging": "500d"}, "365 days"),
        ("/limits", {"pool": "gpu"}, "neither a limit nor a rate"),
        ("/limits", {"pool": "two words", "limit": "1"}, "two words"),
        ("/limits", {"ordered": "yes", "per_lane": "2"}, "per_lane"),
        ("/limits/hold", {"for": ""}, "Hold: enter for how long"),
        ("/limits/hold", {"for": "soon"}, "Hold: &#39;soon&#39; is not a duration"),
        ("/limits/hold", {"for": "9999d"}, "is longer than 365d. Pause the topic instead."),
        ("/limits/hold", {"for": "1m"}, "has no limits, so it cannot be held"),
        ("/limits/lane", {"lane": " "}, "Enter a lane."),
        ("/limits/lane", {"lane": "a", "weight": "0"}, "Weight: &#39;0&#39; is not a whole number from 1 to"),
        ("/limits/lane", {"lane": "a", "limit": "x"}, "Limit: &#39;x&#39; is not a whole number from 1 to"),
        ("/limits/lane", {"lane": "a" * 256}, "255"),
        ("/limits/lane", {"lane": "a"}, "has no lanes"),
    ],
)
async def test_entry_that_cannot_be_meant_changes_nothing(
    dashboard: DashboardUnderTest, client: pulse.Pulse, path: str, fields: dict[str, str], sentence: str
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get("/limits")
    await visitor.post(path, [("topic", "mail"), *fields.items(), ("back", "/limits")])
    assert sentence in (await visitor.get("/limits")).text
    assert await client.limits() == []


async def test_topic_that_cannot_exist_is_refused_with_a_sentence(dashboard: DashboardUnderTest) -> None:
    answer = await Visitor(dashboard.url).get("/topics/two%20words")
    assert answer.status == 400
    assert "two words" in answer.text


async def test_viewer_sees_limits_and_changes_nothing(guarded: DashboardUnderTest) -> None:
    async with guarded.client("operator") as client:
        await client.set_limits("mail", per_lane=pulse.Concurrency(2), limit=pulse.Concurrency(3))
        visitor = Visitor(guarded.url)
        await visitor.log_in("viewer")
        page = (await visitor.get(TOPIC)).text
        assert "Set by operator" in page
        for action in ("Hold…", "Return to code", 'id="set-limits"', 'id="set-lane"'):
            assert action not in page
        for path in ("/limits", "/limits/hold", "/limits/lane"):
            assert (await visitor.post(path, [("topic", "mail"), ("for", "1m")])).status == 403
        (known,) = await client.limits()
        assert known.held_until is None


async def test_dashboard_that_is_read_only_changes_no_limits(server: ServerUnderTest) -> None:
    async with dashboard_under_test(server.address, read_only=True) as dashboard:
        visitor = Visitor(dashboard.url)
        await visitor.get("/limits")
        for path in ("/limits", "/limits/hold", "/limits/lane"):
            assert (await visitor.post(path, [("topic", "mail"), ("limit", "1")])).status == 403
