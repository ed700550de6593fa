"""The hub behind the gate: what it does not even ask for while dispatch is paused."""

import asyncio

import pytest

from pulse_server.jobs.rules import Claim
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import SOON, HubUnderTest, a_session, job_ids, running
from tests.eventually import eventually


@pytest.fixture
def server(claims: FakeClaims) -> HubUnderTest:
    return HubUnderTest(claims)


async def test_hub_asks_nothing_for_workers_whose_topic_is_paused() -> None:
    """The second group is there as a clock: its topic is not paused, and it is asked again and again."""
    server = HubUnderTest(FakeClaims(), SOON)
    await server.switches.pause_topic("mail", "")
    await server.gate.refresh()
    server.claims.add_jobs("mail", "j1")
    server.hub.connect(a_session("w1", "mail"), [])
    server.hub.connect(a_session("w2", "clock"), [])
    with running(server.hub):
        await server.claims.wait_for_calls(10)
    assert {topics for topics, _ in server.claims.claims_made} == {frozenset({"clock"})}
    assert not server.claims.probes_made, "the one group that is open is probed by its claim"


async def test_worker_of_several_topics_gets_those_that_are_open(server: HubUnderTest) -> None:
    await server.switches.pause_topic("mail", "")
    await server.gate.refresh()
    server.claims.add_jobs("mail", "held")
    server.claims.add_jobs("image", "let-through")
    session = a_session("w1", "mail", "image")
    server.hub.connect(session, [])
    with running(server.hub):
        assert await job_ids(session.deliveries()) == ["let-through"]
    assert {topics for topics, _ in server.claims.claims_made} == {frozenset({"image"})}


@pytest.mark.parametrize("topic", [None, "mail"], ids=["everything", "a topic"])
async def test_resume_hands_out_at_once_what_has_waited(server: HubUnderTest, topic: str | None) -> None:
    """The tick is an hour away."""
    if topic:
        await server.switches.pause_topic(topic, "")
    else:
        await server.switches.pause_everything("")
    await server.gate.refresh()
    server.claims.add_jobs("mail", "j1")
    session = a_session("w1", "mail")
    server.hub.connect(session, [])
    with running(server.hub):
        await asyncio.sleep(0)  # its first look, which finds the gate shut
        server.hub.roster.wake({"mail"})
        await server.switches.resume_everything()
        await server.switches.resume_topic("mail")
        await server.gate.refresh()
        assert await job_ids(session.deliveries()) == ["j1"]
    assert len(server.claims.claims_made) == 1


async def test_claim_that_was_under_way_when_the_gate_shut_is_released(server: HubUnderTest) -> None:
    server.claims.add_jobs("mail", "j1")
    server.claims.may_answer.clear()
    session = a_session("w1", "mail")
    server.hub.connect(session, [])
    with running(server.hub):
        await server.claims.wait_for_calls(1)
        await server.switches.pause_everything("")
        await server.gate.refresh()
        server.claims.may_answer.set()
        await eventually(lambda: server.claims.released)
    assert server.claims.released == [Claim("j1", "w1", 1, 1)]
    assert not session.held


async def test_pause_recalls_what_workers_hold_of_the_topic_and_releases_what_was_not_sent(
    server: HubUnderTest,
) -> None:
    session = a_session("w1", "mail", capacity=3)
    server.hub.connect(session, [])
    server.claims.add_jobs("mail", "sent")
    with running(server.hub):
        deliveries = session.deliveries()
        assert await job_ids(deliveries) == ["sent"]
        server.claims.add_jobs("mail", "waits")
        server.hub.roster.wake({"mail"})
        await eventually(lambda: "waits" in session.held)
        await server.switches.pause_topic("mail", "")
        await server.gate.refresh()
        delivery = await anext(deliveries)
        await eventually(lambda: server.claims.released)
    assert (delivery.jobs, delivery.recalled) == ((), frozenset({"mail"}))
    assert server.claims.released == [Claim("waits", "w1", 1, 1)]
    assert set(session.held) == set(server.hub.roster.held_jobs) == {"sent"}


async def test_pause_of_a_topic_claims_from_no_other_topic(server: HubUnderTest) -> None:
    for topic in ("mail", "image"):
        server.hub.connect(a_session(f"w-{topic}", topic), [])
    with running(server.hub):
        await server.claims.wait_for_calls(2)
        await eventually(lambda: not server.hub.roster.demand.due())
        made = len(server.claims.claims_made)
        await server.switches.pause_topic("mail", "")
        await server.gate.refresh()
        for _ in range(5):
            await asyncio.sleep(0)
    assert len(server.claims.claims_made) == made
