"""Jobs of limited topics that wait in a worker: which slots a claim names for them."""

from __future__ import annotations

import asyncio
import math

import pytest

from pulse_server.dispatch.hub import ClaimSlot
from pulse_server.dispatch.limited import FEWEST_SLOTS
from pulse_server.dispatch.workers import Session
from pulse_server.jobs.rules import Claim
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import HubUnderTest, a_session
from tests.eventually import PATIENCE_SECONDS


@pytest.fixture
async def server(claims: FakeClaims) -> HubUnderTest:
    """A hub that knows one topic with a limit."""
    server = HubUnderTest(claims)
    await server.limit_topic("sync", ahead=True)
    return server


async def dispatch(server: HubUnderTest) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await server.hub._dispatch(ClaimSlot())


def finish(server: HubUnderTest, session: Session, *jobs: str) -> None:
    server.hub.roster.answered(session.worker_id, [Claim(job, session.worker_id, 1) for job in jobs])


def named(server: HubUnderTest) -> list[tuple[int, int | None]]:
    """How many slots each claim of limited topics named, and how many of them run at once."""
    return [(len(slots.order), slots.running) for _, slots in server.claims.limited_made]


async def test_slots_that_run_come_before_slots_ahead(server: HubUnderTest) -> None:
    one, other = a_session("w1", "sync", capacity=8, concurrency=1), a_session("w2", "sync", capacity=2)
    for session in (one, other):
        server.hub.connect(session, [])
    await dispatch(server)
    (_, slots) = server.claims.limited_made[0]
    assert slots.running == 3
    assert sorted(slots.workers[index] for index in slots.order[:3]) == ["w1", "w2", "w2"]
    assert [slots.workers[index] for index in slots.order[3:]] == ["w1"] * 7


async def test_worker_that_runs_all_it_can_is_claimed_for_ahead(server: HubUnderTest) -> None:
    server.claims.add_jobs("sync", "j1")
    session = a_session("w1", "sync", capacity=8, concurrency=1)
    server.hub.connect(session, [])
    await dispatch(server)
    server.claims.add_jobs("sync", "j2")
    server.hub.roster.wakeup.clear()

    assert server.hub.roster.wake({"sync"}) == {"sync"}, "a worker of another server may start it at once"

    assert server.hub.roster.wakeup.is_set()
    await dispatch(server)
    assert set(session.held) == {"j1", "j2"}
    assert named(server) == [(8, 1), (7, 0)]


async def test_group_that_would_start_a_job_at_once_claims_first(server: HubUnderTest) -> None:
    full = a_session("w1", "sync", "mail", capacity=50, concurrency=1)
    server.claims.add_jobs("sync", "j1")
    server.hub.connect(full, [])
    await dispatch(server)
    idle = a_session("w2", "sync", capacity=2)
    server.hub.connect(idle, [])
    server.claims.add_jobs("sync", "j2")
    server.hub.roster.wake({"sync"})
    await dispatch(server)
    assert set(idle.held) == {"j2"}


async def test_worker_that_also_has_a_topic_with_a_rate_gets_no_job_ahead(server: HubUnderTest) -> None:
    """Its jobs would find no slot that runs at once, as long as there are others."""
    await server.limit_topic("api")
    session = a_session("w1", "sync", "api", capacity=8, concurrency=2)
    server.claims.add_jobs("sync", *(f"j{number}" for number in range(9)))
    server.hub.connect(session, [])
    await dispatch(server)
    assert named(server)[0] == (2, 2)
    assert len(session.held) == 2


async def test_claim_that_the_limit_cut_short_is_followed_by_one_that_names_fewer_slots(
    server: HubUnderTest,
) -> None:
    claims = server.claims
    claims.add_jobs("sync", *(f"j{number}" for number in range(2000)))
    claims.may_start, claims.next_starts = {"sync": 150}, {"sync": math.inf}
    session = a_session("w1", "sync", capacity=2000, concurrency=10)
    server.hub.connect(session, [])
    await dispatch(server)

    for count in (1, 2):  # as ever more places are free
        finish(server, session, f"j{count}")
        claims.may_start = {"sync": count}
        server.hub.roster.wake({"sync"})
        await dispatch(server)
    assert [slots for slots, _ in named(server)] == [1000, 300, 150]

    claims.may_start, claims.next_starts = {"sync": 1000}, {}
    server.hub.roster.wake({"sync"})
    await dispatch(server)
    assert [slots for slots, _ in named(server)][3:] == [FEWEST_SLOTS, 1000], "until one is filled"
