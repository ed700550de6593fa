"""The hub by itself: what it asks of the database, and what it makes of the answers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from pulse_server.domain.errors import Unavailable
from pulse_server.domain.jobs import Claim
from pulse_server.transport.grpc.group import Group, slots_for
from pulse_server.transport.grpc.hub import Hub
from pulse_server.transport.grpc.session import Parcel, Session
from tests.fakes.dispatch import an_open_gate
from tests.transport.fake_claims import FakeClaims

SOON = timedelta(milliseconds=1)
NEVER = timedelta(hours=1)
GOODBYE = timedelta(seconds=5)


def a_session(worker_id: str = "w1", *topics: str, capacity: int = 2, speaks_batches: bool = True) -> Session:
    return Session(worker_id, frozenset(topics or ("mail",)), capacity, speaks_batches=speaks_batches)


def a_group(*sessions: Session) -> Group:
    group = Group(frozenset({"mail"}))
    for session in sessions:
        group.add(session)
    return group


def a_hub(claims: FakeClaims, tick: timedelta = NEVER) -> Hub:
    return Hub(cast(Any, claims), an_open_gate(), tick=tick, lease_ttl=timedelta(seconds=30))


@contextmanager
def running(hub: Hub) -> Iterator["asyncio.Task[None]"]:
    """Let the hub dispatch for the length of the block."""
    task = asyncio.create_task(hub.run())
    try:
        yield task
    finally:
        task.cancel()


@pytest.fixture
def claims() -> FakeClaims:
    return FakeClaims()


async def next_parcel(parcels: AsyncIterator[Parcel]) -> Parcel:
    async with asyncio.timeout(5):
        return await anext(parcels)


async def job_ids(parcels: AsyncIterator[Parcel]) -> list[str]:
    return [job.id for job in (await next_parcel(parcels)).jobs]


# --- slots


def test_slots_are_dealt_in_rounds_starting_where_most_room_is() -> None:
    group = a_group(a_session("a", capacity=1), a_session("b", capacity=3), a_session("c", capacity=2))
    slots = slots_for(group.places(most=100))
    assert slots.workers == ["b", "c", "a"]
    assert [slots.workers[index] for index in slots.order] == ["b", "c", "a", "b", "c", "b"]


def test_worker_with_fast_handlers_gets_its_jobs_in_a_row() -> None:
    fast = a_session("fast", capacity=6)
    fast.stint = 3
    group = a_group(a_session("slow", capacity=4), fast)
    places = [session.worker_id for session in group.places(most=100)]
    assert places == ["fast"] * 3 + ["slow"] + ["fast"] * 3 + ["slow"] * 3


@pytest.mark.parametrize(
    ("run_seconds", "stint"), [(1.0, 1), (0.0021, 1), (0.0009, 2), (0.0001, 20), (1e-9, 50)]
)
async def test_stint_takes_no_longer_than_a_moment(
    claims: FakeClaims, run_seconds: float, stint: int
) -> None:
    hub = a_hub(claims)
    session = a_session("w")
    hub.open(session, [])
    hub.pace("w", run_seconds)
    assert session.stint == stint


@pytest.mark.parametrize("sessions", [1, 3])
def test_slots_are_never_more_than_a_statement_takes(sessions: int) -> None:
    group = a_group(*(a_session(f"w{number}", capacity=1000) for number in range(sessions)))
    assert len(group.places(most=500)) == 500


def test_full_and_closing_sessions_have_no_slots() -> None:
    full, closing = a_session("full", capacity=1), a_session("closing")
    full.held["job"] = 1
    closing.close()
    group = a_group(full, closing)
    assert group.places(most=100) == []
    assert not group.has_room


def test_slots_tell_who_can_confirm() -> None:
    group = a_group(a_session("new", capacity=2), a_session("old", capacity=1, speaks_batches=False))
    assert slots_for(group.places(most=10)).confirms == [True, False]


# --- how often the database is asked


async def test_workers_of_one_topic_set_share_one_claim(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    sessions = [a_session(f"w{number}", "mail", "image") for number in range(5)]
    for session in sessions:
        hub.open(session, [])
    with running(hub):
        await claims.wait_for_calls(1)
    ((topics, slots),) = claims.claims_made
    assert topics == {"mail", "image"}
    assert len(slots.order) == 10


async def test_group_with_the_most_room_claims_first(claims: FakeClaims) -> None:
    """Else the one that came first would have every job that few of them share."""
    hub = a_hub(claims)
    busy, idle = a_session("w1", "mail", "image", capacity=8), a_session("w2", "mail", capacity=8)
    hub.open(busy, [Claim("held", "w1", 1)])
    hub.open(idle, [])
    claims.add_jobs("mail", "new")
    with running(hub):
        await claims.wait_for_calls(2)
    assert "new" in idle.held


async def test_idle_tick_is_one_probe_however_many_groups_there_are(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    for number in range(5):
        hub.open(a_session(f"w{number}", f"topic-{number}"), [])
    with running(hub):
        await claims.wait_for_calls(6)  # the first probe, and a claim for each group that is new
        first_claims = len(claims.claims_made)
        await claims.wait_for_calls(16)
    assert first_claims == 5
    assert len(claims.claims_made) == 5
    assert set(claims.probes_made) == {frozenset(f"topic-{number}" for number in range(5))}


async def test_lone_group_is_probed_by_its_own_claim(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    hub.open(a_session(), [])
    with running(hub):
        await claims.wait_for_calls(5)
    assert not claims.probes_made


async def test_workers_without_room_cost_nothing(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    for number in range(2):
        hub.open(a_session(f"full-{number}", f"full-{number}", capacity=1), [Claim(f"j{number}", "w", 1)])
    hub.open(a_session("w", "mail"), [])
    with running(hub):
        await claims.wait_for_calls(5)
    assert {topics for topics, _ in claims.claims_made} == {frozenset({"mail"})}
    assert not claims.probes_made


async def test_group_that_came_up_empty_is_not_asked_again_until_it_is_woken(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    hub.open(a_session("w1", "mail"), [])
    hub.open(a_session("w2", "image"), [])
    with running(hub):
        await claims.wait_for_calls(3)
        assert hub.wake({"image"}) == set()
        await claims.wait_for_calls(4)
    assert [topics for topics, _ in claims.claims_made[2:]] == [frozenset({"image"})]


async def test_wake_up_tells_which_topics_nobody_here_can_take(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    hub.open(a_session("w1", "mail"), [])
    hub.open(a_session("w2", "image", capacity=1), [Claim("held", "w2", 1)])
    assert hub.wake({"mail", "image", "audio"}) == {"image", "audio"}


async def test_probe_finds_work_whose_wake_up_was_lost(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    session = a_session("w1", "mail")
    hub.open(session, [])
    hub.open(a_session("w2", "image"), [])
    with running(hub):
        await claims.wait_for_calls(4)
        claims.add_jobs("mail", "job")
        assert await job_ids(session.parcels()) == ["job"]


# --- ADR-0005: a claim that fails is the database's trouble, a write that fails is the stream's


@pytest.mark.parametrize("error", [Unavailable("away"), RuntimeError("a bug")], ids=["blip", "bug"])
async def test_claim_that_fails_keeps_the_streams_and_is_made_again(
    claims: FakeClaims, error: Exception
) -> None:
    hub = a_hub(claims, tick=SOON)
    session = a_session()
    hub.open(session, [])
    claims.add_jobs("mail", "job")
    claims.error = error
    with running(hub) as task:
        await claims.wait_for_calls(3)
        assert not task.done()
        assert not session.is_closing
        claims.error = None
        assert await job_ids(session.parcels()) == ["job"]


async def test_stream_that_breaks_gives_back_what_was_not_sent_and_no_other_notices(
    claims: FakeClaims,
) -> None:
    hub = a_hub(claims)
    broken, healthy = a_session("broken", capacity=4), a_session("healthy", capacity=4)
    hub.open(broken, [])
    hub.open(healthy, [])
    claims.add_jobs("mail", *"abcdefgh")
    with running(hub):
        assert len(await job_ids(healthy.parcels())) == 4
        hub.close(broken)
        await asyncio.sleep(0)
        assert len(claims.released) == 4
        assert {claim.worker_id for claim in claims.released} == {"broken"}


async def test_message_whose_sending_failed_is_given_back_when_its_worker_says_that_it_never_came(
    claims: FakeClaims,
) -> None:
    """The worker may have read it: given back at once, its jobs could run elsewhere and then start here."""
    hub = a_hub(claims)
    session = a_session(capacity=2)
    hub.open(session, [])
    claims.add_jobs("mail", "arrived", "lost")
    with running(hub):
        assert len(await job_ids(session.parcels())) == 2
        hub.close(session)
        await asyncio.sleep(0)
        assert claims.released == []
        hub.open(a_session(capacity=2), [Claim("arrived", "w1", 1)])
        await asyncio.sleep(0)
    assert claims.released == [Claim("lost", "w1", 1)]


async def test_job_claimed_for_a_worker_that_has_left_is_released(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.open(session, [])
    claims.add_jobs("mail", "job")
    claims.may_answer.clear()
    with running(hub):
        await claims.wait_for_calls(1)
        hub.close(session)
        claims.may_answer.set()
        await hub.drain(GOODBYE)
    assert claims.released == [Claim("job", "w1", 1)]


async def test_drain_gives_back_what_a_claim_under_way_brings(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.open(session, [])
    claims.add_jobs("mail", "job")
    claims.may_answer.clear()
    with running(hub):
        await claims.wait_for_calls(1)
        draining = asyncio.create_task(hub.drain(GOODBYE))
        assert [parcel.is_last async for parcel in session.parcels()] == [True]
        hub.close(session)
        for _ in range(20):  # whatever else the drain does, it has the turns to do it
            await asyncio.sleep(0)
        assert not draining.done()
        claims.may_answer.set()
        await draining
    assert claims.released == [Claim("job", "w1", 1)]


async def test_drained_hub_takes_no_worker(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    await hub.drain(GOODBYE)
    with pytest.raises(Unavailable):
        hub.open(a_session(), [])


async def test_worker_that_does_not_read_cannot_hold_up_a_drain_for_ever(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.open(session, [])
    claims.add_jobs("mail", "job")
    with running(hub):
        await claims.wait_for_calls(1)
        await hub.drain(timedelta(milliseconds=20))
    assert claims.released == [Claim("job", "w1", 1)]


# --- the books


async def test_stop_takes_a_job_out_of_the_line_that_was_not_sent(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.open(session, [])
    claims.add_jobs("mail", "job", "other")
    with running(hub):
        await claims.wait_for_calls(1)
        parcels = session.parcels()
        hub.stop_claims([Claim("job", "w1", 1)])
        assert (await next_parcel(parcels)).jobs[0].id == "other"


async def test_stop_of_another_attempt_is_not_for_this_worker(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=1)
    hub.open(session, [Claim("job", "w1", 2)])
    hub.stop_claims([Claim("job", "w1", 1), Claim("job", "w2", 2)])
    assert session.held == {"job": 2}
    hub.stop_claims([Claim("job", "w1", 2)])
    assert session.held == {}
    assert (await next_parcel(session.parcels())).stops == (Claim("job", "w1", 2),)


@pytest.mark.parametrize("worker_id", ["w1", ""], ids=["by name", "original contract"])
async def test_worker_that_let_a_lease_lapse_gets_one_job_at_a_time_until_it_answers(
    claims: FakeClaims, worker_id: str
) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=3)
    hub.open(session, [Claim("silent", "w1", 1), Claim("probe", "w1", 1)])
    hub.lapse_claims([Claim("silent", "w1", 1)])
    assert session.free == 0, "it holds one already"
    hub.settle([Claim("probe", "w1", 1)])
    assert session.free == 1, "that its job ended elsewhere says nothing about it"
    hub.open(other := a_session("w2"), [Claim("other", "w2", 1)])
    hub.answered("w2", [Claim("other", "w2", 1)])
    assert (session.free, other.free) == (1, 2)
    session.held["again"] = 1
    hub.answered(worker_id, [])
    assert session.free == (2 if worker_id else 0)


async def test_report_of_the_probe_ends_the_probation_of_an_original_worker(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=3, speaks_batches=False)
    hub.open(session, [Claim("silent", "w1", 1), Claim("probe", "w1", 1)])
    hub.lapse_claims([Claim("silent", "w1", 1)])
    hub.answered("", [Claim("probe", None, None)])
    assert session.free == 3


async def test_cancelled_job_puts_nobody_on_probation(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=3)
    hub.open(session, [Claim("job", "w1", 1)])
    hub.stop_claims([Claim("job", "w1", 1)])
    assert session.free == 3


async def test_reconcile_frees_the_slot_of_a_job_reported_elsewhere(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=2)
    gone, held = Claim("gone", "w1", 1), Claim("held", "w1", 1)
    hub.open(session, [gone, held])
    claims.gone.add(gone)
    await hub.reconciler.reconcile()
    assert session.free == 0, "a claim may be too young for the database to know of its end"
    await hub.reconciler.reconcile()
    assert session.held == {"held": 1}


async def test_reconcile_frees_slots_though_two_sessions_count_on_the_job(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    lost, holder = a_session("lost", capacity=1), a_session("holder", capacity=1)
    hub.open(holder, [Claim("job", "holder", 2)])
    hub.open(lost, [Claim("job", "lost", 1)])
    claims.gone |= {Claim("job", "lost", 1), Claim("job", "holder", 2)}
    await hub.reconciler.reconcile()
    await hub.reconciler.reconcile()
    assert (lost.free, holder.free) == (1, 1)


async def test_report_without_worker_and_attempt_settles_the_job(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=1, speaks_batches=False)
    hub.open(session, [Claim("job", "w1", 1)])
    hub.settle([Claim("job", None, None)])
    assert session.free == 1


async def test_original_worker_gets_one_job_per_parcel(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session(capacity=100, speaks_batches=False)
    hub.open(session, [])
    claims.add_jobs("mail", "a", "b")
    with running(hub):
        parcels = session.parcels()
        assert [await job_ids(parcels), await job_ids(parcels)] == [["a"], ["b"]]


async def test_resize_counts_for_every_stream_that_names_its_capacity(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    new, old = a_session("w", capacity=1), a_session("w", "image", capacity=100, speaks_batches=False)
    hub.open(new, [])
    hub.open(old, [])
    hub.resize("w", 7)
    assert (new.capacity, old.capacity) == (7, 100)
