"""One group's trouble is not another's: claims that fail or hang stop no other group."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from datetime import timedelta

import pytest

from pulse_server.base.errors import LimitsLocked, Unavailable
from pulse_server.dispatch.hub import CLAIM_FAILURES, CLAIM_SLOTS, Failures, Hub
from pulse_server.dispatch.workers import Session
from tests.dispatch.fake_claims import FakeClaims
from tests.dispatch.hub_under_test import NEVER, SOON, HubUnderTest, a_hub, a_session, running
from tests.eventually import eventually

AWAY = Unavailable("The database did not answer. Try again.")


def a_worker(hub: Hub, topic: str, capacity: int = 10) -> Session:
    session = a_session(f"worker-of-{topic}", topic, capacity=capacity)
    hub.connect(session, [])
    return session


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.dispatch.hub.CLAIM_PATIENCE", SOON)


@pytest.mark.parametrize("error", [AWAY, RuntimeError("a bug")], ids=["blip", "bug"])
async def test_group_whose_claims_fail_stops_no_other(claims: FakeClaims, error: Exception) -> None:
    hub = a_hub(claims, tick=SOON)
    a_worker(hub, "broken", capacity=100)  # the roomiest: its turn comes first
    healthy = a_worker(hub, "mail")
    claims.errors["broken"] = error
    claims.add_jobs("broken", "never")
    claims.add_jobs("mail", "a", "b")
    with running(hub):
        await eventually(lambda: len(healthy.held) == 2, "the other group got its jobs")


async def test_claim_that_hangs_stops_no_other_group(claims: FakeClaims, impatient: None) -> None:
    hub = a_hub(claims, tick=NEVER)
    slow = a_worker(hub, "slow", capacity=100)
    healthy = a_worker(hub, "mail")
    claims.held_up["slow"] = asyncio.Event()
    claims.add_jobs("slow", "late")
    claims.add_jobs("mail", "a")
    with running(hub):
        await eventually(lambda: "a" in healthy.held, "the other group got its job")
        claims.add_jobs("mail", "b")
        hub.roster.wake({"mail"})
        await eventually(lambda: "b" in healthy.held, "wake-ups are heard meanwhile")
        assert not slow.held
        claims.held_up["slow"].set()
        await eventually(lambda: "late" in slow.held, "the claim that hung counts")


async def test_group_has_one_claim_under_way_however_long_it_takes(
    claims: FakeClaims, impatient: None
) -> None:
    hub = a_hub(claims, tick=SOON)
    a_worker(hub, "slow")
    a_worker(hub, "mail")
    claims.held_up["slow"] = asyncio.Event()
    with running(hub):
        await claims.wait_for_calls(10)
        hub.roster.wake({"slow"})
        await claims.wait_for_calls(20)
    assert [topics for topics, _ in claims.claims_made].count(frozenset({"slow"})) == 1


async def test_many_groups_that_hang_again_and_again_leave_a_lane_for_the_others(
    claims: FakeClaims, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.dispatch.hub.CLAIM_REST", timedelta(0))
    hub = a_hub(claims, tick=SOON)
    slow = [f"slow-{number}" for number in range(3 * CLAIM_SLOTS)]
    for topic in slow:
        a_worker(hub, topic, capacity=100)
        claims.errors[topic] = AWAY
    healthy = a_worker(hub, "mail")
    with running(hub):
        await eventually(
            lambda: all(group.failures for group in hub.roster.groups if group.topics != {"mail"})
        )
        for topic in slow:
            claims.held_up[topic] = asyncio.Event()
        await claims.wait_for_calls(len(claims.claims_made) + len(claims.probes_made) + CLAIM_SLOTS)
        claims.add_jobs("mail", "a")
        hub.roster.wake({"mail"})
        await eventually(lambda: "a" in healthy.held, "the healthy group got its job")


async def test_look_that_fails_leaves_the_claims_alone(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=SOON)
    mail, image = a_worker(hub, "mail"), a_worker(hub, "image")
    claims.look_error = AWAY
    with running(hub):
        await claims.wait_for_calls(5)
        claims.add_jobs("mail", "a")
        claims.add_jobs("image", "b")
        hub.roster.wake({"mail"})
        await eventually(lambda: "a" in mail.held, "a group that is known to have work gets it")
        await eventually(lambda: "b" in image.held, "one whose wake-up was lost finds out by its own claim")


async def test_database_that_is_away_is_asked_a_few_times_between_two_ticks(claims: FakeClaims) -> None:
    hub = a_hub(claims, tick=NEVER)
    for number in range(50):
        a_worker(hub, f"topic-{number}")
    claims.error = AWAY
    with running(hub):
        await claims.wait_for_calls(1 + CLAIM_FAILURES)
        hub.roster.wake(None)
        for _ in range(100):
            await asyncio.sleep(0)
    assert len(claims.claims_made) == CLAIM_FAILURES


async def test_failing_group_is_logged_once_and_when_it_recovers(
    claims: FakeClaims, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    hub = a_hub(claims, tick=SOON)
    session = a_worker(hub, "mail")
    claims.add_jobs("mail", "a")
    claims.errors["mail"] = AWAY
    with running(hub):
        await claims.wait_for_calls(5)
        claims.errors.clear()
        await eventually(lambda: session.held)
    records = [record for record in caplog.records if record.msg.startswith("dispatch_")]
    assert [record.msg for record in records] == ["dispatch_failing", "dispatch_recovered"]
    assert {tuple(vars(record)["topics"]) for record in records} == {("mail",)}


async def test_limited_topic_whose_claims_fail_stops_no_other_of_its_worker(
    claims: FakeClaims, caplog: pytest.LogCaptureFixture
) -> None:
    """They are claimed together: after a failure each is claimed alone, and the log names the one."""
    server = HubUnderTest(claims, tick=SOON)
    await server.limit_topic("broken", "sync", "train")
    caplog.set_level(logging.INFO)
    session = a_session("w1", "broken", "sync", "train", capacity=10)
    claims.errors["broken"] = RuntimeError("timestamp out of range")
    claims.add_jobs("broken", "never")
    server.hub.connect(session, [])
    with running(server.hub):
        for number in range(3):
            claims.add_jobs("sync", f"s{number}")
            claims.add_jobs("train", f"t{number}")
            server.hub.roster.wake({"broken", "sync", "train"})
            await eventually(lambda number=number: {f"s{number}", f"t{number}"} <= set(session.held))
        claims.errors.clear()
        await eventually(lambda: "never" in session.held, "it is claimed again once that succeeds")
    records = [record for record in caplog.records if record.msg.startswith("dispatch_")]
    assert [record.msg for record in records] == ["dispatch_failed", "dispatch_recovered"]
    assert {tuple(vars(record)["topics"]) for record in records} == {("broken",)}


async def test_limited_topics_that_are_locked_stop_no_other_of_their_worker(claims: FakeClaims) -> None:
    """A lock does not show that the database is away: every topic has its turn between two ticks."""
    server = HubUnderTest(claims, tick=SOON)
    locked = [f"locked-{number}" for number in range(2 * CLAIM_FAILURES)]
    await server.limit_topic(*locked, "sync")
    claims.errors.update(dict.fromkeys(locked, LimitsLocked()))
    session = a_session("w1", *locked, "sync", capacity=10)
    server.hub.connect(session, [])
    claims.add_jobs("sync", "a")
    with running(server.hub):
        await eventually(lambda: "a" in session.held)


@pytest.mark.parametrize("error", [AWAY, RuntimeError("a bug"), LimitsLocked()], ids=["blip", "bug", "lock"])
async def test_many_limited_topics_whose_claims_fail_do_not_starve_a_healthy_one(
    claims: FakeClaims, error: Exception
) -> None:
    server = HubUnderTest(claims, tick=SOON)
    broken = [f"broken-{number:02}" for number in range(3 * CLAIM_FAILURES)]
    await server.limit_topic(*broken, "sync")
    claims.errors.update(dict.fromkeys(broken, error))
    session = a_session("w1", *broken, "sync", capacity=100)
    server.hub.connect(session, [])
    with running(server.hub):
        for number in range(20):
            claims.add_jobs("sync", f"s{number}")
            server.hub.roster.wake({*broken, "sync"})
            await eventually(lambda number=number: f"s{number}" in session.held)
    tries = Counter(topics[0] for topics, _ in claims.limited_made if len(topics) == 1)
    assert max(tries[topic] for topic in broken) <= min(tries["sync"], 5)  # a failing one rests


async def test_topic_that_is_claimed_alone_takes_turns_with_busy_healthy_ones() -> None:
    failures = Failures()
    failures.topics_failed(["busy", "quiet"], AWAY, 0.0)
    failures.topics_succeeded(["busy"])

    turns = [failures.next_topics(["busy", "quiet"], 20, is_last_slot=False) for _ in range(4)]

    assert turns == [["busy"], ["quiet"], ["busy"], ["quiet"]]


async def test_limited_topics_of_a_database_that_is_away_are_asked_a_few_times_between_two_ticks(
    claims: FakeClaims,
) -> None:
    server = HubUnderTest(claims, tick=NEVER)
    topics = [f"topic-{number}" for number in range(30)]
    await server.limit_topic(*topics)
    server.hub.connect(a_session("w1", *topics), [])
    claims.error = AWAY
    with running(server.hub):
        await claims.wait_for_calls(CLAIM_FAILURES)
        server.hub.roster.wake(None)
        for _ in range(100):
            await asyncio.sleep(0)
    assert len(claims.limited_made) == CLAIM_FAILURES
