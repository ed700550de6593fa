"""The hub claims by floors, and looks at everything at the tick. ADR-0055"""

from __future__ import annotations

import asyncio

from pulse_server.dispatch.hub import LONGEST_REST_SECONDS, ClaimSlot, Look
from pulse_server.jobs.rules import Claim, Level
from pulse_server.wakeups.watchers import Wakeup
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import SOON, a_hub, a_session, running
from tests.eventually import eventually

LEVEL = Level("mail", 3, 0.5)


async def test_job_whose_level_was_announced_is_claimed_from_there(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.connect(session, [])
    with running(hub):
        await claims.wait_for_calls(1)
        claims.add_jobs("mail", "job")
        hub.roster.wake({"mail"}, [LEVEL])
        await eventually(lambda: "job" in session.held)
    full, levels = claims.levels_asked[0], claims.levels_asked[-1]
    assert full is None
    assert [level[:2] for level in levels or ()] == [("mail", 3)]


async def test_wake_up_without_a_level_is_a_full_look(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    hub.connect(a_session(), [])
    with running(hub):
        await claims.wait_for_calls(1)
        hub.roster.wake({"mail"})
        await claims.wait_for_calls(2)
    assert claims.levels_asked == [None] * 2


async def test_levels_of_another_servers_message_are_claimed_from(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    session = a_session()
    hub.connect(session, [])
    with running(hub):
        await claims.wait_for_calls(1)
        hub._on_wakeup(Wakeup(topics=frozenset({"mail"}), levels=(LEVEL,)))
        await claims.wait_for_calls(2)
    assert [level[:2] for level in claims.levels_asked[-1] or ()] == [("mail", 3)]


async def test_job_below_the_floor_is_found_at_the_tick(claims: FakeClaims) -> None:
    """Its wake-up was lost, or it became claimable again without one."""
    hub = a_hub(claims, tick=SOON)
    session = a_session()
    hub.connect(session, [])
    with running(hub):
        await claims.wait_for_calls(3)
        claims.add_jobs("mail", "slipped")
        await eventually(lambda: "slipped" in session.held)
    assert claims.levels_asked[-1] is None


async def test_next_claim_of_a_busy_worker_after_a_tick_is_a_full_look(claims: FakeClaims) -> None:
    """Its slot is never free at the tick. A job below the floor would wait for the end of the backlog."""
    claims.age_seconds = 0.0
    hub, session = a_hub(claims), a_session(capacity=1)
    hub.connect(session, [])
    with running(hub):
        await claims.wait_for_calls(1)
        claims.add_jobs("mail", "first", "slipped")
        hub.roster.wake({"mail"}, [LEVEL])
        await eventually(lambda: "first" in session.held)
        rested = asyncio.get_running_loop().time() + LONGEST_REST_SECONDS
        await hub.looks.tick(ClaimSlot(), rested)
        hub.roster.settle([Claim("first", "w1", 1, 1)])
        await eventually(lambda: "slipped" in session.held)
    assert [levels is None for levels in claims.levels_asked] == [True, False, True]


async def test_worker_that_connects_is_served_by_a_full_look(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    hub.connect(a_session("w1", capacity=1), [])
    claims.add_jobs("mail", "first", "slipped")
    with running(hub):
        await claims.wait_for_calls(1)
        second = a_session("w2")
        hub.connect(second, [])
        await eventually(lambda: "slipped" in second.held)
    assert claims.levels_asked[-1] is None


async def test_look_that_is_slow_is_made_less_often() -> None:
    look = Look()
    look.begin(100.0)
    look.seconds = 0.25
    assert not look.is_due(104.9)
    assert look.is_due(105.0)


async def test_next_look_comes_within_ten_seconds_however_long_the_last_one_took() -> None:
    look = Look()
    look.begin(100.0)
    look.seconds = 5.0
    assert look.is_due(110.0)


async def test_look_that_took_long_once_does_not_make_those_after_it_rare(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    hub.connect(a_session(), [])
    hub.looks.plain.seconds = 5.0  # of the last one
    with running(hub):
        await claims.wait_for_calls(3)
    assert claims.levels_asked == [None] * len(claims.levels_asked)


async def test_paused_and_resumed_topic_is_looked_at_as_a_whole(claims: FakeClaims) -> None:
    hub = a_hub(claims)
    hub.connect(a_session(), [])
    with running(hub):
        await claims.wait_for_calls(1)
        hub.roster.wake(None)
        await claims.wait_for_calls(2)
    assert claims.levels_asked[-1] is None
