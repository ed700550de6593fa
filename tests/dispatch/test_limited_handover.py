"""New jobs of limited topics and free workers: when a submit also claims. ADR-0064"""

from __future__ import annotations

import asyncio

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.hub import ClaimSlot
from pulse_server.jobs.new_jobs import Submitted
from pulse_server.jobs.rules import Claim
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import HubUnderTest, a_session, running
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.fakes.store import a_job


@pytest.fixture
async def server(claims: FakeClaims) -> HubUnderTest:
    """A hub that knows one limited topic."""
    server = HubUnderTest(claims)
    await server.limit_topic("sync")
    return server


async def dispatch(server: HubUnderTest) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await server.hub._dispatch(ClaimSlot())


async def test_job_of_an_emptied_topic_goes_to_a_waiting_worker_at_its_submit(server: HubUnderTest) -> None:
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    await dispatch(server)
    job = a_job("sync", lane="shop-7")

    assert await server.hub.hand_over([job]) == [Submitted(job.id, False, is_taken=True)]

    assert set(session.held) == {job.id}
    assert [topics for topics, _ in server.claims.limited_made] == [["sync"], ["sync"]]


async def test_topic_that_was_not_claimed_yet_is_left_to_the_claim(server: HubUnderTest) -> None:
    server.hub.connect(a_session("w1", "sync"), [])
    assert await server.hub.hand_over([a_job("sync")]) is None


@pytest.mark.parametrize("seconds", [0.0, 3600.0, float("inf")])
async def test_topic_whose_jobs_wait_for_more_than_a_slot_is_left_to_claims(
    server: HubUnderTest, seconds: float
) -> None:
    """A submit would only lock the pool against them."""
    session = a_session("w1", "sync", capacity=8)
    server.hub.connect(session, [])
    await dispatch(server)
    server.claims.next_starts = {"sync": seconds}
    server.claims.may_start = {"sync": 1}
    await server.hub.hand_over([a_job("sync")])
    assert len(session.held) == 1

    assert await server.hub.hand_over([a_job("sync")]) is None

    server.claims.next_starts = {}
    server.hub.roster.wake({"sync"})
    await dispatch(server)
    assert await server.hub.hand_over([a_job("sync")]) is not None


async def test_claim_that_filled_all_slots_may_have_left_jobs(server: HubUnderTest) -> None:
    session = a_session("w1", "sync", capacity=1)
    server.claims.add_jobs("sync", "j1", "j2")
    server.hub.connect(session, [])
    await dispatch(server)
    server.hub.connect(a_session("w2", "sync"), [])
    server.hub.roster.demand.clear_work(["sync"])
    assert await server.hub.hand_over([a_job("sync")]) is None


async def test_submit_does_not_claim_while_a_claim_of_its_pool_is_under_way(claims: FakeClaims) -> None:
    server = HubUnderTest(claims)
    await server.limit_topic("train", "render", pool="gpu")
    for topic in ("train", "render"):
        server.hub.connect(a_session(f"w-{topic}", topic), [])
    await dispatch(server)
    claims.may_answer.clear()
    first = asyncio.create_task(server.hub.hand_over([a_job("train")]))
    await eventually(lambda: claims.handovers_made)

    assert await server.hub.hand_over([a_job("render")]) is None

    claims.may_answer.set()
    await first
    assert await server.hub.hand_over([a_job("render")]) is not None


async def test_hub_claims_after_a_handover_what_was_announced_during_it(server: HubUnderTest) -> None:
    claims = server.claims
    session = a_session("w1", "sync", capacity=8)
    server.hub.connect(session, [])
    with running(server.hub):
        await claims.wait_for_calls(1)
        await eventually(lambda: not server.hub.roster.limited._claiming)
        claims.may_answer.clear()
        handover = asyncio.create_task(server.hub.hand_over([a_job("sync")]))
        await eventually(lambda: claims.handovers_made)
        server.hub.roster.wake({"sync"})
        await asyncio.sleep(0)
        assert len(claims.limited_made) == 2, "the first claim, and that of the hand-over"
        claims.may_answer.set()
        await handover
        await eventually(lambda: len(claims.limited_made) == 3)


async def test_hub_claims_after_a_handover_that_failed(server: HubUnderTest) -> None:
    claims = server.claims
    session = a_session("w1", "sync", capacity=1)
    server.hub.connect(session, [])
    await dispatch(server)
    claims.error = Unavailable("The database is away.")
    with pytest.raises(Unavailable):
        await server.hub.hand_over([a_job("sync")])
    claims.error = None
    claims.lines.clear()
    claims.add_jobs("sync", "j1")
    server.hub.roster.wake({"sync"})
    await dispatch(server)
    assert set(session.held) == {"j1"}, "its slot is free again"


async def test_batch_that_the_waiting_workers_cannot_take_is_only_stored(server: HubUnderTest) -> None:
    """Slots in which jobs would wait for others do not count: they would hold places of the limit."""
    server.hub.connect(a_session("w1", "sync", capacity=8, concurrency=2), [])
    await dispatch(server)
    assert await server.hub.hand_over([a_job("sync") for _ in range(3)]) is None
    assert await server.hub.hand_over([a_job("sync") for _ in range(2)]) is not None


async def test_batch_of_several_topics_is_not_claimed_for(claims: FakeClaims) -> None:
    server = HubUnderTest(claims)
    await server.limit_topic("sync", "sms")
    server.hub.connect(a_session("w1", "sync", "sms", capacity=8), [])
    await dispatch(server)
    assert await server.hub.hand_over([a_job("sync"), a_job("sms")]) is None


async def test_job_of_a_paused_limited_topic_is_only_stored(server: HubUnderTest) -> None:
    server.hub.connect(a_session("w1", "sync"), [])
    await dispatch(server)
    await server.switches.pause_topic("sync", "")
    await server.gate.refresh()
    server.hub.roster.demand.clear_work(["sync"])
    assert await server.hub.hand_over([a_job("sync")]) is None


async def test_job_that_was_taken_for_a_worker_that_left_is_released(server: HubUnderTest) -> None:
    claims = server.claims
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    await dispatch(server)
    claims.may_answer.clear()
    job = a_job("sync")
    handover = asyncio.create_task(server.hub.hand_over([job]))
    await eventually(lambda: claims.handovers_made)
    session.close()
    server.hub.disconnect(session)
    claims.may_answer.set()
    await handover
    assert claims.released == [Claim(job.id, "w1", 1, 1)]


async def test_server_that_is_stopping_hands_nothing_over(server: HubUnderTest) -> None:
    server.hub.connect(a_session("w1", "sync"), [])
    await dispatch(server)
    server.hub._is_stopping = True
    assert await server.hub.hand_over([a_job("sync")]) is None
