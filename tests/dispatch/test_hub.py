"""The hub by itself: what it asks of the database, and what it makes of the answers."""

import asyncio
from datetime import timedelta

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.jobs.rules import Claim
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import SOON, a_hub, a_session, job_ids, running

GOODBYE = timedelta(seconds=5)


# --- how often the database is asked


async def test_workers_of_one_topic_set_share_one_claim(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    sessions = [a_session(f"w{number}", "mail", "image") for number in range(5)]
    for session in sessions:
        hub.connect(session, [])
    with running(hub):
        await claims.wait_for_calls(1)
    ((topics, slots),) = claims.claims_made
    assert topics == {"mail", "image"}
    assert len(slots.order) == 10


async def test_group_with_the_most_room_claims_first(claims: FakeClaims) -> None:
    """Else the one that came first would have every job that few of them share."""
    hub = a_hub(claims)
    busy, idle = a_session("w1", "mail", "image", capacity=8), a_session("w2", "mail", capacity=8)
    hub.connect(busy, [Claim("held", "w1", 1, 1)])
    hub.connect(idle, [])
    claims.add_jobs("mail", "new")
    with running(hub):
        await claims.wait_for_calls(2)
    assert "new" in idle.held


async def test_idle_tick_is_one_probe_however_many_groups_there_are(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    for number in range(5):
        hub.connect(a_session(f"w{number}", f"topic-{number}"), [])
    with running(hub):
        await claims.wait_for_calls(6)  # the first probe, and a claim for each group that is new
        first_claims = len(claims.claims_made)
        await claims.wait_for_calls(16)
    assert first_claims == 5
    assert len(claims.claims_made) == 5
    assert set(claims.probes_made) == {frozenset(f"topic-{number}" for number in range(5))}


async def test_lone_group_is_probed_by_its_own_claim(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    hub.connect(a_session(), [])
    with running(hub):
        await claims.wait_for_calls(5)
    assert not claims.probes_made


async def test_workers_without_room_cost_nothing(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    for number in range(2):
        hub.connect(
            a_session(f"full-{number}", f"full-{number}", capacity=1), [Claim(f"j{number}", "w", 1, 1)]
        )
    hub.connect(a_session("w", "mail"), [])
    with running(hub):
        await claims.wait_for_calls(5)
    assert {topics for topics, _ in claims.claims_made} == {frozenset({"mail"})}
    assert not claims.probes_made


async def test_group_that_came_up_empty_is_not_asked_again_until_it_is_woken(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    hub.connect(a_session("w1", "mail"), [])
    hub.connect(a_session("w2", "image"), [])
    with running(hub):
        await claims.wait_for_calls(3)
        assert hub.roster.wake({"image"}) == set()
        await claims.wait_for_calls(4)
    assert [topics for topics, _ in claims.claims_made[2:]] == [frozenset({"image"})]


async def test_wake_up_returns_the_topics_that_no_worker_here_can_take(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    hub.connect(a_session("w1", "mail"), [])
    hub.connect(a_session("w2", "image", capacity=1), [Claim("held", "w2", 1, 1)])
    assert hub.roster.wake({"mail", "image", "audio"}) == {"image", "audio"}


async def test_wake_up_returns_a_topic_with_fewer_free_slots_than_new_jobs(claims: FakeClaims) -> None:
    """Workers of other servers may have slots for the rest, or worse jobs to start."""
    hub = a_hub(claims)
    hub.connect(a_session("w1", "mail", capacity=2), [])
    hub.connect(a_session("w2", "mail", "image", capacity=1), [])
    assert hub.roster.wake({"mail"}, jobs=3) == set()
    hub.roster.wakeup.clear()
    assert hub.roster.wake({"mail"}, jobs=4) == {"mail"}
    assert hub.roster.wakeup.is_set()


async def test_hub_sleeps_on_until_a_slot_is_free_for_what_was_submitted(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    hub.connect(a_session("w1", "mail", capacity=0), [])
    hub.roster.wakeup.clear()
    assert hub.roster.wake({"mail"}) == {"mail"}
    assert not hub.roster.wakeup.is_set()

    claims.add_jobs("mail", "job")
    hub.roster.resize("w1", 1)
    with running(hub):
        await claims.wait_for_calls(1)


async def test_probe_finds_work_whose_wake_up_was_lost(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    session = a_session("w1", "mail")
    hub.connect(session, [])
    hub.connect(a_session("w2", "image"), [])
    with running(hub):
        await claims.wait_for_calls(4)
        claims.add_jobs("mail", "job")
        assert await job_ids(session.deliveries()) == ["job"]


# --- a claim that fails is the database's trouble, a write that fails is the stream's


@pytest.mark.parametrize("error", [Unavailable("away"), RuntimeError("a bug")], ids=["blip", "bug"])
async def test_claim_that_fails_keeps_the_streams_and_is_made_again(
    claims: FakeClaims, error: Exception
) -> None:
    hub = a_hub(claims, tick=SOON)
    session = a_session()
    hub.connect(session, [])
    claims.add_jobs("mail", "job")
    claims.error = error
    with running(hub) as task:
        await claims.wait_for_calls(3)
        assert not task.done()
        assert not session.is_closing
        claims.error = None
        assert await job_ids(session.deliveries()) == ["job"]


async def test_stream_that_breaks_gives_back_what_was_not_sent_and_no_other_notices(
    claims: FakeClaims,
) -> None:
    hub = a_hub(claims)
    broken, healthy = a_session("broken", capacity=4), a_session("healthy", capacity=4)
    hub.connect(broken, [])
    hub.connect(healthy, [])
    claims.add_jobs("mail", *"abcdefgh")
    with running(hub):
        assert len(await job_ids(healthy.deliveries())) == 4
        hub.disconnect(broken)
        await asyncio.sleep(0)
        assert len(claims.released) == 4
        assert {claim.worker_id for claim in claims.released} == {"broken"}


async def test_message_whose_sending_failed_is_given_back_when_its_worker_says_that_it_never_came(
    claims: FakeClaims,
) -> None:
    """The worker may have read it: given back at once, its jobs could run elsewhere and then start here."""
    hub = a_hub(claims)
    session = a_session(capacity=2)
    hub.connect(session, [])
    claims.add_jobs("mail", "arrived", "lost")
    with running(hub):
        assert len(await job_ids(session.deliveries())) == 2
        hub.disconnect(session)
        await asyncio.sleep(0)
        assert claims.released == []
        hub.connect(a_session(capacity=2), [Claim("arrived", "w1", 1, 1)])
        await asyncio.sleep(0)
    assert claims.released == [Claim("lost", "w1", 1, 1)]


async def test_job_claimed_for_a_worker_that_has_left_is_released(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.connect(session, [])
    claims.add_jobs("mail", "job")
    claims.may_answer.clear()
    with running(hub):
        await claims.wait_for_calls(1)
        hub.disconnect(session)
        claims.may_answer.set()
        await hub.drain(GOODBYE)
    assert claims.released == [Claim("job", "w1", 1, 1)]


async def test_drain_gives_back_what_a_claim_under_way_brings(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.connect(session, [])
    claims.add_jobs("mail", "job")
    claims.may_answer.clear()
    with running(hub):
        await claims.wait_for_calls(1)
        draining = asyncio.create_task(hub.drain(GOODBYE))
        assert [delivery.is_last async for delivery in session.deliveries()] == [True]
        hub.disconnect(session)
        for _ in range(20):  # whatever else the drain does, it has the turns to do it
            await asyncio.sleep(0)
        assert not draining.done()
        claims.may_answer.set()
        await draining
    assert claims.released == [Claim("job", "w1", 1, 1)]


async def test_drained_hub_takes_no_worker(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    await hub.drain(GOODBYE)
    with pytest.raises(Unavailable):
        hub.connect(a_session(), [])


async def test_worker_that_does_not_read_cannot_hold_up_a_drain_for_ever(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.connect(session, [])
    claims.add_jobs("mail", "job")
    with running(hub):
        await claims.wait_for_calls(1)
        await hub.drain(timedelta(milliseconds=20))
    assert claims.released == [Claim("job", "w1", 1, 1)]
