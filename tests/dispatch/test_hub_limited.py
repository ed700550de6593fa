"""The hub and topics with limits: what it claims for them, and when. ADR-0064"""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from pulse_server.base.errors import Unavailable
from pulse_server.dispatch.hub import LIMITED_TOPICS, ClaimSlot
from pulse_server.dispatch.workers import Session
from pulse_server.jobs.rules import Claim
from pulse_server.wakeups.watchers import Wakeup
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import SOON, HubUnderTest, a_session, job_ids, running
from tests.eventually import PATIENCE_SECONDS, eventually
from tests.fakes.dispatch import unlimit_topic


@pytest.fixture
async def server(claims: FakeClaims) -> HubUnderTest:
    """A hub that knows one limited topic."""
    server = HubUnderTest(claims)
    await server.limit_topic("sync")
    return server


async def dispatch(server: HubUnderTest) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await server.hub._dispatch(ClaimSlot())


def finish(server: HubUnderTest, session: Session, *jobs: str) -> None:
    server.hub.roster.answered(session.worker_id, [Claim(job, session.worker_id, 1, 1) for job in jobs])


async def test_limited_topic_is_claimed_by_a_statement_of_its_own(server: HubUnderTest) -> None:
    server.claims.add_jobs("sync", "j1")
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    with running(server.hub):
        assert await job_ids(session.deliveries()) == ["j1"]
    assert [topics for topics, _ in server.claims.limited_made] == [["sync"]]
    assert not server.claims.claims_made


async def test_plain_topics_of_a_worker_are_claimed_without_its_limited_ones(server: HubUnderTest) -> None:
    server.hub.connect(a_session("w1", "sync", "mail"), [])
    await dispatch(server)
    assert [topics for topics, _ in server.claims.claims_made] == [{"mail"}]
    assert [topics for topics, _ in server.claims.limited_made] == [["sync"]]


async def test_topics_are_claimed_as_before_while_none_is_limited(claims: FakeClaims) -> None:
    server = HubUnderTest(claims)
    server.hub.connect(a_session("w1", "sync", "mail"), [])
    await dispatch(server)
    assert [topics for topics, _ in claims.claims_made] == [{"mail", "sync"}]
    assert not claims.limited_made


async def test_topic_that_becomes_limited_is_claimed_as_such_at_once(claims: FakeClaims) -> None:
    """The tick is an hour away, and so are plain claims: the database gives them nothing."""
    server = HubUnderTest(claims)
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    with running(server.hub):
        await claims.wait_for_calls(1)
        claims.add_jobs("sync", "j1")
        await server.limit_topic("sync")
        await eventually(lambda: "j1" in session.held)
        assert len(claims.claims_made) == 1
        unlimit_topic(server.switches, "sync")
        claims.add_jobs("sync", "j2")
        await server.gate.refresh()
        await eventually(lambda: "j2" in session.held)
    assert len(claims.claims_made) == 2


async def test_plain_and_limited_topics_take_turns(server: HubUnderTest) -> None:
    """Each of them could fill the worker for good."""
    claims = server.claims
    claims.add_jobs("sync", *(f"s{number}" for number in range(10)))
    claims.add_jobs("mail", *(f"m{number}" for number in range(10)))
    claims.may_start = {"sync": 10}
    session = a_session("w1", "sync", "mail", capacity=1)
    server.hub.connect(session, [])
    taken = []
    for _ in range(6):
        await dispatch(server)
        (job,) = session.held
        taken.append(job[0])
        finish(server, session, job)
    assert sorted(taken) == ["m"] * 3 + ["s"] * 3
    assert all(one != other for one, other in pairwise(taken))


async def test_claim_that_came_away_short_is_not_repeated_before_a_wake_up(server: HubUnderTest) -> None:
    claims = server.claims
    claims.add_jobs("sync", "j1", "j2")
    claims.may_start = {"sync": 1}
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    await dispatch(server)
    await dispatch(server)
    assert len(claims.limited_made) == 1

    claims.may_start = {"sync": 1}
    server.hub.roster.wake({"sync"})
    await dispatch(server)
    assert set(session.held) == {"j1", "j2"}


async def test_claim_that_filled_all_slots_is_repeated_once_one_is_free(server: HubUnderTest) -> None:
    claims = server.claims
    claims.add_jobs("sync", "j1", "j2", "j3")
    claims.may_start = {"sync": 3}
    session = a_session("w1", "sync", capacity=2)
    server.hub.connect(session, [])
    await dispatch(server)
    assert set(session.held) == {"j1", "j2"}
    assert server.line.topics == [{"sync"}], "another server may have a slot for the third"

    finish(server, session, "j1")
    await dispatch(server)
    assert set(session.held) == {"j2", "j3"}


async def test_topic_whose_pool_is_full_is_not_claimed_again_before_a_run_ends(
    server: HubUnderTest,
) -> None:
    claims = server.claims
    claims.add_jobs("sync", "j1", "j2")
    claims.next_starts = {"sync": float("inf")}
    session = a_session("w1", "sync", capacity=1)
    server.hub.connect(session, [])
    await dispatch(server)
    finish(server, session, "j1")
    await dispatch(server)
    assert len(claims.limited_made) == 1
    assert not server.line.topics


async def test_only_slots_whose_jobs_run_at_once_are_offered(server: HubUnderTest) -> None:
    claims = server.claims
    claims.add_jobs("sync", *(f"j{number}" for number in range(9)))
    claims.may_start = {"sync": 9}
    session = a_session("w1", "sync", capacity=8, concurrency=3)
    server.hub.connect(session, [])
    await dispatch(server)
    assert len(session.held) == 3

    finish(server, session, "j0")
    await dispatch(server)
    assert [len(slots.order) for _, slots in claims.limited_made] == [3, 1]


async def test_worker_that_names_no_concurrency_is_offered_its_capacity(server: HubUnderTest) -> None:
    server.claims.add_jobs("sync", *(f"j{number}" for number in range(9)))
    server.claims.may_start = {"sync": 9}
    session = a_session("w1", "sync", capacity=8)
    server.hub.connect(session, [])
    await dispatch(server)
    assert len(session.held) == 8


async def test_worker_that_runs_all_it_can_still_gets_plain_jobs_ahead(server: HubUnderTest) -> None:
    claims = server.claims
    claims.add_jobs("sync", *(f"s{number}" for number in range(9)))
    claims.add_jobs("mail", *(f"m{number}" for number in range(9)))
    claims.may_start = {"sync": 9}
    session = a_session("w1", "sync", "mail", capacity=6, concurrency=2)
    server.hub.connect(session, [])
    await dispatch(server)
    assert len(session.held) == 6
    assert sum(job.startswith("s") for job in session.held) <= 2


async def test_job_for_which_only_slots_ahead_are_free_here_is_announced_to_the_others(
    server: HubUnderTest,
) -> None:
    server.claims.add_jobs("sync", "j1")
    server.hub.connect(a_session("w1", "sync", capacity=3, concurrency=1), [])
    await dispatch(server)
    assert server.hub.roster.wake({"sync"}) == {"sync"}


async def test_topics_of_one_claim_come_in_another_order_each_time(claims: FakeClaims) -> None:
    """The first ones may take all slots: the last one must not always be the last."""
    server = HubUnderTest(claims)
    topics = [f"t{number}" for number in range(5)]
    await server.limit_topic(*topics)
    server.hub.connect(a_session("w1", *topics), [])
    for _ in range(100):
        server.hub.roster.wake(topics)
        await dispatch(server)
    assert all(sorted(asked) == topics for asked, _ in claims.limited_made)
    assert {asked[0] for asked, _ in claims.limited_made} == set(topics)


async def test_claim_asks_for_a_bounded_number_of_topics_and_the_next_one_for_the_others(
    claims: FakeClaims,
) -> None:
    server = HubUnderTest(claims)
    topics = [f"t{number}" for number in range(2 * LIMITED_TOPICS + 1)]
    await server.limit_topic(*topics)
    server.hub.connect(a_session("w1", *topics), [])
    await dispatch(server)
    assert [len(asked) for asked, _ in claims.limited_made] == [LIMITED_TOPICS, LIMITED_TOPICS, 1]
    assert {topic for asked, _ in claims.limited_made for topic in asked} == set(topics)


async def test_lost_wake_up_is_repaired_by_the_tick(claims: FakeClaims) -> None:
    server = HubUnderTest(claims, SOON)
    await server.limit_topic("sync")
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    with running(server.hub):
        await claims.wait_for_calls(3)
        claims.add_jobs("sync", "j1")
        await eventually(lambda: "j1" in session.held)
    assert not claims.probes_made, "whether a limited topic may start a job, only its claim knows"


async def test_wake_up_of_another_server_claims_at_once(server: HubUnderTest) -> None:
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    with running(server.hub):
        await server.claims.wait_for_calls(1)
        server.claims.add_jobs("sync", "j1")
        server.line.deliver(Wakeup(topics=frozenset({"sync"})))
        await eventually(lambda: "j1" in session.held)


async def test_paused_limited_topic_is_not_claimed_and_its_jobs_are_recalled(server: HubUnderTest) -> None:
    server.claims.add_jobs("sync", "j1")
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    with running(server.hub):
        await server.claims.wait_for_calls(1)
        await eventually(lambda: session.held)
        await server.switches.pause_topic("sync", "")
        await server.gate.refresh()
        assert server.claims.released == [Claim("j1", "w1", 1, 1)]
        server.claims.add_jobs("sync", "j2")
        server.hub.roster.wake({"sync"})
        await asyncio.sleep(0)
        calls = len(server.claims.limited_made)
        await server.switches.resume_topic("sync")
        await server.gate.refresh()
        await eventually(lambda: "j2" in session.held)
    assert calls == 1


async def test_claim_that_failed_is_made_again(claims: FakeClaims) -> None:
    server = HubUnderTest(claims, SOON)
    await server.limit_topic("sync")
    claims.add_jobs("sync", "j1")
    claims.error = Unavailable("The pool is locked.")
    session = a_session("w1", "sync")
    server.hub.connect(session, [])
    with running(server.hub):
        await claims.wait_for_calls(2)
        assert not session.held
        claims.error = None
        await eventually(lambda: "j1" in session.held)


async def test_topic_whose_claim_waits_is_not_claimed_for_another_group(claims: FakeClaims) -> None:
    """The second one would wait for the same pool, and hold up plain topics with it."""
    server = HubUnderTest(claims)
    await server.limit_topic("sync", "report", pool="pool")
    claims.may_answer.clear()
    server.hub.connect(a_session("w1", "sync"), [])
    first = asyncio.create_task(server.hub._dispatch(ClaimSlot()))
    await claims.wait_for_calls(1)
    server.hub.connect(a_session("w2", "sync", "other"), [])
    server.hub.connect(a_session("w3", "report"), [])
    second = asyncio.create_task(server.hub._dispatch(ClaimSlot()))
    await claims.wait_for_calls(2)
    assert [topics for topics, _ in claims.claims_made] == [{"other"}]
    assert len(claims.limited_made) == 1

    claims.may_answer.set()
    await asyncio.gather(first, second)
    assert {topic for topics, _ in claims.limited_made[1:] for topic in topics} == {"sync", "report"}
