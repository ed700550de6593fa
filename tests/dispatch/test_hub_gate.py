"""The hub behind the gate: what it does not even ask for while dispatch is paused."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from pulse_server.dispatch.hub import Hub
from pulse_server.domain.jobs import Claim
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import NEVER, SOON, a_session, job_ids, running
from tests.eventually import eventually
from tests.fakes.dispatch import InMemoryDispatchRepo, an_open_gate


class Place:
    """A hub, its gate, and the switches behind it."""

    def __init__(self, tick: timedelta) -> None:
        self.claims = FakeClaims()
        self.switches = InMemoryDispatchRepo()
        self.gate = an_open_gate(self.switches)
        self.hub = Hub(cast(Any, self.claims), self.gate, tick=tick, lease_ttl=timedelta(seconds=30))
        self.gate.on_change(self.hub.change_gate)


@pytest.fixture
def place() -> Place:
    return Place(NEVER)


async def test_hub_asks_nothing_for_workers_whose_topic_is_paused() -> None:
    """The second group is there as a clock: its topic is not paused, and it is asked again and again."""
    place = Place(SOON)
    await place.switches.pause_topic("mail", "")
    await place.gate.refresh()
    place.claims.add_jobs("mail", "j1")
    place.hub.open(a_session("w1", "mail"), [])
    place.hub.open(a_session("w2", "clock"), [])
    with running(place.hub):
        await place.claims.wait_for_calls(10)
    assert {topics for topics, _ in place.claims.claims_made} == {frozenset({"clock"})}
    assert not place.claims.probes_made, "the one group that is open is probed by its claim"


async def test_worker_of_several_topics_gets_those_that_are_open(place: Place) -> None:
    await place.switches.pause_topic("mail", "")
    await place.gate.refresh()
    place.claims.add_jobs("mail", "held")
    place.claims.add_jobs("image", "let-through")
    session = a_session("w1", "mail", "image")
    place.hub.open(session, [])
    with running(place.hub):
        assert await job_ids(session.parcels()) == ["let-through"]
    assert {topics for topics, _ in place.claims.claims_made} == {frozenset({"image"})}


@pytest.mark.parametrize("topic", [None, "mail"], ids=["everything", "a topic"])
async def test_resume_hands_out_at_once_what_has_waited(place: Place, topic: str | None) -> None:
    """The tick is an hour away."""
    if topic:
        await place.switches.pause_topic(topic, "")
    else:
        await place.switches.pause_everything("")
    await place.gate.refresh()
    place.claims.add_jobs("mail", "j1")
    session = a_session("w1", "mail")
    place.hub.open(session, [])
    with running(place.hub):
        await asyncio.sleep(0)  # its first look, which finds the gate shut
        place.hub.wake({"mail"})
        await place.switches.resume_everything()
        await place.switches.resume_topic("mail")
        await place.gate.refresh()
        assert await job_ids(session.parcels()) == ["j1"]
    assert len(place.claims.claims_made) == 1


async def test_claim_that_was_under_way_when_the_gate_shut_is_released(place: Place) -> None:
    place.claims.add_jobs("mail", "j1")
    place.claims.may_answer.clear()
    session = a_session("w1", "mail")
    place.hub.open(session, [])
    with running(place.hub):
        await place.claims.wait_for_calls(1)
        await place.switches.pause_everything("")
        await place.gate.refresh()
        place.claims.may_answer.set()
        await eventually(lambda: place.claims.released)
    assert place.claims.released == [Claim("j1", "w1", 1)]
    assert not session.held


async def test_pause_recalls_what_workers_hold_of_the_topic_and_releases_what_was_not_sent(
    place: Place,
) -> None:
    session = a_session("w1", "mail", capacity=3)
    place.hub.open(session, [])
    place.claims.add_jobs("mail", "sent")
    with running(place.hub):
        parcels = session.parcels()
        assert await job_ids(parcels) == ["sent"]
        place.claims.add_jobs("mail", "waits")
        place.hub.wake({"mail"})
        await eventually(lambda: "waits" in session.held)
        await place.switches.pause_topic("mail", "")
        await place.gate.refresh()
        parcel = await anext(parcels)
        await eventually(lambda: place.claims.released)
    assert (parcel.jobs, parcel.recalled) == ((), frozenset({"mail"}))
    assert place.claims.released == [Claim("waits", "w1", 1)]
    assert set(session.held) == {"sent"}
