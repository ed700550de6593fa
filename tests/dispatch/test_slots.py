"""The slots of a claim: how many each worker gets, and in which order."""

from collections import Counter

import pytest

from pulse_server.dispatch.workers import Group, Session, reserved, slots_for
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import a_hub, a_session, running
from tests.rows import each_row


def a_group(*sessions: Session) -> Group:
    group = Group(frozenset({"mail"}))
    for session in sessions:
        group.add(session)
    return group


def test_slots_are_dealt_in_rounds_starting_where_most_room_is() -> None:
    group = a_group(a_session("a", capacity=1), a_session("b", capacity=3), a_session("c", capacity=2))
    slots = slots_for(group.slots(most=100))
    assert slots.workers == ["b", "c", "a"]
    assert [slots.workers[index] for index in slots.order] == ["b", "c", "a", "b", "c", "b"]


def test_worker_with_fast_handlers_gets_its_jobs_in_a_row() -> None:
    fast = a_session("fast", capacity=6)
    fast.burst = 3
    group = a_group(a_session("slow", capacity=4), fast)
    places = [session.worker_id for session in group.slots(most=100)]
    assert places == ["fast"] * 3 + ["slow"] + ["fast"] * 3 + ["slow"] * 3


@pytest.mark.parametrize(
    ("run_seconds", "burst"), [(1.0, 1), (0.0021, 1), (0.0009, 2), (0.0001, 20), (1e-9, 50)]
)
async def test_burst_takes_no_longer_than_a_moment(
    claims: FakeClaims, run_seconds: float, burst: int
) -> None:
    hub = a_hub(claims)
    session = a_session("w")
    hub.connect(session, [])
    hub.roster.set_pace("w", run_seconds)
    assert session.burst == burst


@each_row("sessions", [1, 3])
def test_slots_are_never_more_than_a_statement_takes(sessions: int) -> None:
    group = a_group(*(a_session(f"w{number}", capacity=1000) for number in range(sessions)))
    assert len(group.slots(most=500)) == 500


def test_full_and_closing_sessions_have_no_slots() -> None:
    full, closing = a_session("full", capacity=1), a_session("closing")
    full.held["job"] = 1
    closing.close()
    group = a_group(full, closing)
    assert group.slots(most=100) == []
    assert not group.has_slots


def test_slots_name_the_workers_that_can_confirm() -> None:
    group = a_group(a_session("new", capacity=2), a_session("old", capacity=1, speaks_batches=False))
    assert slots_for(group.slots(most=10)).confirms == [True, False]


# --- packed dealing.


def a_crowd(workers: int, capacity: int) -> Group:
    return a_group(*(a_session(f"w{number}", capacity=capacity) for number in range(workers)))


def test_claim_that_fills_all_slots_fills_whole_workers() -> None:
    group = a_crowd(workers=100, capacity=40)
    spread = group.slots(most=1000)

    packed = Counter(group.packed_slots(spread, most=1000))

    assert max(Counter(spread).values()) == 10
    assert len(packed) == 25
    assert set(packed.values()) == {40}
    assert packed.keys() <= set(spread)


def test_packed_order_still_reaches_twenty_workers() -> None:
    group = a_crowd(workers=30, capacity=1000)

    packed = Counter(group.packed_slots(group.slots(most=1000), most=1000))

    assert len(packed) == 20


@each_row("workers, capacity", [(100, 9), (1, 2000)])
def test_no_second_order_where_it_would_change_nothing(workers: int, capacity: int) -> None:
    group = a_crowd(workers, capacity)

    assert group.packed_slots(group.slots(most=1000), most=1000) == []


def test_slots_stay_reserved_in_either_order() -> None:
    a, b = a_session("a", capacity=3), a_session("b", capacity=3)
    with reserved([a, b], [a, a]):
        assert (a.free, b.free) == (1, 2)
    assert (a.free, b.free) == (3, 3)


async def test_hub_offers_the_packed_order_where_slots_are_more_than_a_claim_takes(
    claims: FakeClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.dispatch.hub.CLAIM_BATCH", 4)
    claims.add_jobs("mail", *(f"job {number}" for number in range(5)))
    hub = a_hub(claims)
    for number in range(3):
        hub.connect(a_session(f"w{number}", capacity=3), [])
    with running(hub):
        await claims.wait_for_calls(2)
    (_, first), (_, second) = claims.claims_made
    assert (first.order, first.packed) == ([0, 1, 2, 0], [0, 0, 0, 1])
    assert len(second.packed) == 4
