"""The use of limits and lanes, from a page: shown with owners, pending, held, and questions before harm."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest_asyncio

import pulse
from tests.rows import each_row
from tests.transport.pulse_server_under_test import ServerUnderTest
from tests.ui.dashboards import DashboardUnderTest
from tests.ui.declarations import declare
from tests.ui.visitors import Visitor

TOPIC = "/topics/mail"
LIMITS = "/topics?view=limits"
MAIL = ("topic", "mail")
RESET = [("reset", "1")]


@pytest_asyncio.fixture(loop_scope="session")
async def client(server: ServerUnderTest) -> AsyncIterator[pulse.Pulse]:
    async with pulse.Pulse(server.address, user="", password="") as client:
        yield client


async def test_limits_are_shown_with_their_use_and_who_says_so(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    visitor = Visitor(dashboard.url)
    assert "No topic has limits" in (await visitor.get(LIMITS)).text
    await declare(server, "mailer-1", running=10, per_lane=2)
    await declare(server, "mailer-2", running=20, per_lane=2)
    await client.set_topic("mail", rate=pulse.Rate(100, per=timedelta(minutes=1)))
    page = (await visitor.get(LIMITS)).text
    assert "workers differ" in page
    assert "2 of a lane" in page
    page_of_topic = (await visitor.get(TOPIC)).text
    for text in (page, page_of_topic):
        assert 'title="declared by the code: 10">0 of 10 <span class="owner code">code</span>' in text
        assert 'title="set by an operator: 100/min">0 of 100/min <span class="owner operator">' in text
    assert "Workers declare different limits" in page_of_topic
    assert '<span class="mono">mailer-2</span>: running at once 20, per lane 2' in page_of_topic


async def test_pending_limits_are_shown_with_what_they_wait_for(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse, database_dsn: str
) -> None:
    visitor, shop = Visitor(dashboard.url), await asyncpg.connect(database_dsn)
    async with server.worker() as worker, shop.transaction():
        await server.submit()
        await worker.take_one()
        await shop.execute("SELECT FROM pulse.jobs FOR UPDATE")

        await visitor.get(TOPIC)
        answer = await visitor.post(TOPIC, [("running", "4")])

        clause = f"in force once pid {shop.get_server_pid()} "
        page = (await visitor.get(TOPIC)).text
        assert f"The settings of mail are accepted, {clause}" in page + answer.text
        settings = await client.set_topic("mail", running=5)
        (known,) = await client.limits()
        assert settings.pending.startswith(clause)
        assert (known.pending, known.in_force) == (settings.pending, {})
        page = (await visitor.get(TOPIC)).text
        assert f"pending</span> The last change is accepted, {clause}" in page
        assert "This topic has no limits" in page
        assert "pending</span>" in (await visitor.get(LIMITS)).text
    await shop.close()
    await server.app.topics.settings.apply()
    assert "The last change is accepted" not in (await visitor.get(TOPIC)).text
    assert " of 5" in (await visitor.get(LIMITS)).text


async def test_topic_without_limits_can_be_given_some(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    visitor = Visitor(dashboard.url)
    assert "This topic has no limits" in (await visitor.get(TOPIC)).text
    await visitor.post(TOPIC, [("running", "3"), ("pool", "shared")])
    (known,) = await client.limits()
    assert (known.in_force["running"], known.in_force["pool"]) == (3, "shared")
    assert "Counted over all topics of the pool shared." in (await visitor.get(TOPIC)).text
    await visitor.post(TOPIC, RESET)
    assert await client.limits() == []
    assert "This topic has no limits" in (await visitor.get(TOPIC)).text


async def test_topic_is_held_and_the_hold_is_ended(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await client.set_topic("mail", running=3)
    job = await client.enqueue("mail", {})
    visitor = Visitor(dashboard.url)
    assert "End the hold" not in (await visitor.get(TOPIC)).text
    await visitor.post("/holds", [MAIL, ("for", "2m"), ("back", TOPIC)])
    page = (await visitor.get(TOPIC)).text
    assert "mail is held for 2 min." in page
    assert "Held until" in page
    assert "Held" in (await visitor.get(LIMITS)).text
    assert "No worker that takes &#39;mail&#39; is connected." in (await visitor.get(f"/jobs/{job.id}")).text
    await visitor.post("/holds", [MAIL, ("for", "0s"), ("back", TOPIC)])
    (known,) = await client.limits()
    assert known.held_until is None


async def test_lanes_are_shown_by_wait_and_by_share_and_weighed(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await client.set_topic("mail", running=2, per_lane=2)
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
            "/lanes",
            [MAIL, ("lane", "big"), ("weight", "3"), ("limit", "1"), ("confirmed", "yes")],
        )
        (big,) = [lane for lane in await client.lanes("mail") if lane.lane == "big"]
        assert (big.weight, big.limit) == (3, 1)
        page = (await visitor.get(TOPIC)).text
        assert "Saved the lane big." in page
        assert '3 <span class="owner operator">operator</span>' in page
        page = (await visitor.get(f"/jobs/{waiting.id}")).text
        assert '<dt>Lane</dt><dd><a href="/topics/mail#lanes">' in page
        assert "Its lane big is at its limit: " in page
        assert 'title="Lane">big</span>' in (await visitor.get("/jobs?topic=mail")).text


async def test_limit_that_stops_what_runs_asks_first(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    """A limit, the limits of the code, one of a lane, and a hold: the answer is the same form once more."""
    await client.set_topic("mail", running=5, per_lane=5)
    await declare(server, "mailer-1", running=1, per_lane=2)
    for _ in range(3):
        await client.enqueue("mail", {}, lane="big")
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    async with server.worker("mailer-1", topics=["mail"], capacity=3) as worker:
        await worker.take(3)
        for path, fields, sentence in (
            (TOPIC, [("running", "2")], "3 jobs run on mail now. With a limit of 2"),
            (TOPIC, RESET, "With a limit of 1 they go on, and no other starts before 3 have ended."),
            (TOPIC, [("per_lane", "2")], "3 jobs run on the lane &#39;big&#39; now."),
            ("/lanes", [("lane", "big"), ("limit", "2")], "no other starts before 2 have ended."),
            ("/holds", [("for", "2m")], "Hold mail for 2m? 3 running jobs finish."),
        ):
            before = await client.limits(), await client.lanes("mail")
            answer = await visitor.post(path, [MAIL, *fields, ("back", TOPIC)])
            assert sentence in answer.text
            assert f'action="{path}" method="post"' in answer.text
            assert '<input type="hidden" name="confirmed" value="yes">' in answer.text
            assert (await client.limits(), await client.lanes("mail")) == before
        for fields in ([("running", "3")], [("running", "2"), ("confirmed", "yes")]):
            answer = await visitor.post(TOPIC, [*fields])
            assert answer.status == 303
        assert (await client.topic_settings("mail")).operator["running"] == 2


async def test_limit_of_a_pool_counts_the_jobs_of_all_its_topics(
    server: ServerUnderTest, dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await client.set_topic("sms", running=9, pool="provider")
    await client.set_topic("mail", running=9)
    visitor = Visitor(dashboard.url)
    await visitor.get(TOPIC)
    for topic in ("mail", "sms", "sms"):
        await client.enqueue(topic, {})
    async with server.worker("mailer-1", topics=["mail", "sms"], capacity=3) as worker:
        await worker.take(3)
        joined = [("running", "2"), ("pool", "provider")]
        answer = await visitor.post(TOPIC, joined)
        assert "3 jobs run on the pool provider now. With a limit of 2" in answer.text
        answer = await visitor.post(TOPIC, [("running", "2")])
        assert answer.status == 303, "alone, one job of mail runs"


async def test_limit_of_a_pool_is_marked_where_the_topic_has_another(
    dashboard: DashboardUnderTest, client: pulse.Pulse
) -> None:
    await client.set_topic("sms", running=2, pool="provider")
    await client.set_topic("mail", running=9, pool="provider")
    page = (await Visitor(dashboard.url).get(TOPIC)).text
    assert 'title="in force, of its pool: 2; set by an operator: 9">0 of 2 <span class="owner pool">' in page


@each_row(
    "path, fields, sentence",
    [
        ("/holds", {"for": ""}, "Hold: enter for how long"),
        ("/holds", {"for": "soon"}, "Hold: &#39;soon&#39; is not a duration"),
        ("/holds", {"for": "9999d"}, "is longer than 365d. Pause the topic instead."),
        ("/holds", {"for": "1m"}, "has no limits, so it cannot be held"),
        ("/lanes", {"lane": " "}, "Enter a lane."),
        ("/lanes", {"lane": "a", "weight": "0"}, "Weight is 0: it must be from 1 to 1,000."),
        ("/lanes", {"lane": "a", "limit": "x"}, "Limit: &#39;x&#39; is not a whole number from 1 to"),
        ("/lanes", {"lane": "a" * 256}, "255"),
        ("/lanes", {"lane": "a"}, "has no lanes"),
    ],
)
async def test_hold_or_lane_that_cannot_be_meant_changes_nothing(
    dashboard: DashboardUnderTest, client: pulse.Pulse, path: str, fields: dict[str, str], sentence: str
) -> None:
    visitor = Visitor(dashboard.url)
    await visitor.get(LIMITS)
    await visitor.post(path, [MAIL, *fields.items(), ("back", LIMITS)])
    assert sentence in (await visitor.get(LIMITS)).text
    assert await client.limits() == []


async def test_topic_that_cannot_exist_is_refused_with_a_sentence(dashboard: DashboardUnderTest) -> None:
    answer = await Visitor(dashboard.url).get("/topics/two%20words")
    assert answer.status == 400
    assert "two words" in answer.text
