"""When the next job of a limited topic may start: the timers of the hub. ADR-0064"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from pulse_server.dispatch.limited import LimitedTopics, NextStarts
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import HubUnderTest, a_session, running
from tests.eventually import eventually

HOUR = 3600.0


class Woken:
    def __init__(self) -> None:
        self.topics: list[str] = []
        self.at: list[float] = []

    def __call__(self, topics: Iterable[str]) -> None:
        self.topics += topics
        self.at.append(asyncio.get_running_loop().time())


@pytest.fixture
def woken() -> Woken:
    return Woken()


@pytest.fixture
def starts(woken: Woken) -> NextStarts:
    return NextStarts(woken)


async def test_more_at_once_after_a_claim_that_brought_jobs_wakes_at_once(
    starts: NextStarts, woken: Woken
) -> None:
    starts.claimed({"sync"}, {"sync": 0.0})
    assert woken.topics == ["sync"]


async def test_more_at_once_after_an_empty_claim_wakes_later_and_later(
    starts: NextStarts, woken: Woken
) -> None:
    """Otherwise claims that can find nothing would follow each other without a pause."""
    waits = []
    for number in range(1, 5):
        before = asyncio.get_running_loop().time()
        starts.claimed((), {"sync": 0.0})
        await eventually(lambda number=number: len(woken.topics) == number)  # type: ignore[misc]
        waits.append(woken.at[-1] - before)
    assert all(wait >= 0.009 * 2**number for number, wait in enumerate(waits))


async def test_claim_that_brought_jobs_ends_the_longer_pauses(starts: NextStarts, woken: Woken) -> None:
    for _ in range(10):
        starts.claimed((), {"sync": 0.0})
    starts.claimed({"sync"}, {})
    assert not starts._pauses


async def test_later_start_wakes_the_topic_then_and_others_on_their_own(
    starts: NextStarts, woken: Woken
) -> None:
    starts.claimed((), {"soon": 0.01, "late": HOUR})
    assert not woken.topics
    await eventually(lambda: woken.topics)
    assert woken.topics == ["soon"]


async def test_of_several_times_of_a_topic_the_earliest_counts(starts: NextStarts, woken: Woken) -> None:
    starts.claimed((), {"sync": HOUR})
    starts.claimed((), {"sync": 0.01})
    starts.claimed((), {"sync": HOUR})
    assert len(starts._timers) == 1
    await eventually(lambda: woken.topics)


async def test_no_time_is_known_of_a_full_pool(starts: NextStarts, woken: Woken) -> None:
    starts.claimed({"sync"}, {"sync": float("inf")})
    assert not starts._timers
    assert not woken.topics


async def test_timers_are_forgotten(starts: NextStarts) -> None:
    starts.claimed((), {"sync": HOUR})
    (timer,) = starts._timers.values()
    starts.forget()
    assert timer.cancelled()
    assert not starts._timers


async def test_hub_claims_again_when_the_time_has_come(claims: FakeClaims) -> None:
    """The tick is an hour away, and nothing is announced."""
    server = HubUnderTest(claims)
    await server.limit_topic("sync")
    claims.add_jobs("sync", "j1")
    claims.may_start = {"sync": 0}
    claims.next_starts = {"sync": 0.02}
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    with running(server.hub):
        await claims.wait_for_calls(1)
        claims.may_start = {"sync": 1}
        await eventually(lambda: "j1" in session.held)


async def test_runs_that_end_concern_all_topics_of_their_pool_and_no_plain_ones() -> None:
    limited = LimitedTopics(Woken())
    limited.replace({"sync": "gpu", "train": "gpu", "mail": "mail"}, frozenset())
    assert limited.sharing_with(["sync"]) == {"sync", "train"}
    assert limited.sharing_with(["mail", "plain"]) == {"mail"}
    assert limited.sharing_with(["plain"]) == set()
    assert limited.among({"sync", "plain"}) == {"sync"}


async def test_time_that_comes_while_no_slot_is_free_here_is_announced_to_the_others(
    claims: FakeClaims,
) -> None:
    server = HubUnderTest(claims)
    await server.limit_topic("sync")
    claims.add_jobs("sync", "j1", "j2")
    claims.may_start = {"sync": 1}
    claims.next_starts = {"sync": 0.02}
    server.line.topics.clear()
    session = a_session("w1", "sync", capacity=1)
    server.hub.connect(session, [])
    with running(server.hub):
        # The claim that fills the slots announces what is left, then the timer announces the next start.
        await eventually(lambda: len(server.line.topics) == 2)
    assert server.line.topics == [{"sync"}, {"sync"}]
    assert len(claims.limited_made) == 1
