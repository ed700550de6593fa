"""Limits, rates, lanes, pauses and the reads of operators, in a kit: they follow its clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

import pulse
from pulse.testing import Kit

MINUTE = timedelta(minutes=1)


@pytest.fixture
def p() -> pulse.SyncPulse:
    return pulse.SyncPulse("localhost:1")


@pytest.fixture
def kit(p: pulse.SyncPulse) -> Iterator[Kit]:
    with Kit(p) as kit:
        yield kit


def test_rate_lets_jobs_start_as_the_clock_moves(p: pulse.SyncPulse, kit: Kit) -> None:
    ran: list[int] = []

    @p.job("rated", rate=pulse.Rate(2, MINUTE))
    def rated(n: int) -> None:
        ran.append(n)

    rated.enqueue_many([{"n": n} for n in range(6)])
    assert kit.drain() == {"completed": 2}
    assert kit.drain() == {}
    kit.advance(seconds=70)  # a rate counts in slices of its period
    assert kit.drain() == {"completed": 2}
    assert kit.advance(minutes=2, drain=True) == {"completed": 2}
    assert ran == [0, 1, 2, 3, 4, 5]


def test_running_job_is_the_one_that_its_limit_lets_run(p: pulse.SyncPulse, kit: Kit) -> None:
    causes: list[str] = []

    @p.job("limited", running=1)
    def limited(n: int) -> None:
        causes.extend(p.explain(job.id).cause for job in kit.all("limited", n=1) if n == 0)

    limited.enqueue(0)
    limited.enqueue(1)
    assert kit.drain() == {"completed": 2}
    assert causes == ["topic_limit"]


def test_ordered_lane_runs_its_jobs_in_order(p: pulse.SyncPulse, kit: Kit) -> None:
    ran: list[tuple[str, int]] = []

    @p.job("laned", per_lane=1)
    def laned(name: str, n: int) -> None:
        ran.append((name, n))

    for n in range(3):
        for name in ("ada", "bob"):
            laned.options(lane=name).enqueue(name, n)
    assert kit.drain() == {"completed": 6}
    assert [n for name, n in ran if name == "ada"] == [0, 1, 2]
    assert [name for name, _ in ran][:2] == ["ada", "bob"]


def test_paused_topic_waits_and_others_run(p: pulse.SyncPulse, kit: Kit) -> None:
    p.register("paused", lambda: None)
    p.register("open", lambda: None)
    p.pause(topic="paused", reason="a release")
    p.enqueue("paused")
    p.enqueue("open")
    assert kit.drain() == {"completed": 1}
    assert kit.one("paused").status is pulse.JobStatus.PENDING
    p.resume("paused")
    assert kit.drain() == {"completed": 1}


def test_everything_paused_in_one_kit_is_open_in_the_next(p: pulse.SyncPulse) -> None:
    p.register("plain", lambda: None)
    with Kit(p) as kit:
        p.pause(reason="a release")
        p.enqueue("plain")
        assert kit.drain() == {}
    with Kit(p) as kit:
        p.enqueue("plain")
        assert kit.drain() == {"completed": 1}
        assert p.dispatch_status().paused is False


def test_hold_of_a_handler_ends_with_the_clock(p: pulse.SyncPulse, kit: Kit) -> None:
    @p.job("held", running=5)
    def held(ctx: pulse.SyncContext, n: int) -> None:
        if n == 0:
            ctx.hold(10 * MINUTE)

    held.enqueue(n=0)
    held.enqueue(n=1)
    assert kit.drain() == {"completed": 1}
    kit.advance(minutes=9)
    assert kit.drain() == {}
    assert kit.advance(minutes=2, drain=True) == {"completed": 1}


def test_limits_of_one_kit_do_not_reach_the_next(p: pulse.SyncPulse) -> None:
    other = pulse.SyncPulse("localhost:1")
    p.register("changing", lambda: None, rate=pulse.Rate(1, timedelta(days=1)))
    other.register("changing", lambda: None)
    for client, expected in ((p, 1), (other, 2), (p, 1)):
        with Kit(client) as kit:
            client.enqueue("changing")
            client.enqueue("changing")
            assert kit.drain() == {"completed": expected}


def test_search_export_and_audit(p: pulse.SyncPulse, kit: Kit) -> None:
    p.register("found", lambda city: None)
    first = p.enqueue("found", {"city": "Oslo"})
    p.enqueue("found", {"city": "Rome"})
    assert [job.id for job in p.search_jobs("args.city=Oslo")] == [first.id]
    p.cancel(first.id, reason="wrong city")
    assert len(list(p.export_jobs())) == 1
    (entry, *_) = p.audit()
    assert (entry.method, entry.reason) == ("CancelJob", "wrong city")


def test_read_that_is_repeated_is_read_anew(p: pulse.SyncPulse, kit: Kit) -> None:
    p.register("seen", lambda: None)
    for waiting in (1, 2):
        p.enqueue("seen")
        (topic,) = p.topics()
        assert topic.ready == waiting
    kit.drain()
    assert [topic.ready for topic in p.topics()] in ([], [0])


def test_job_without_a_handler_has_no_worker_and_others_have_the_kit(p: pulse.SyncPulse, kit: Kit) -> None:
    p.register("served", lambda: None)
    assert p.get_job(p.enqueue("served").id).no_worker is None
    assert "elsewhere" in (p.get_job(p.enqueue("elsewhere").id).no_worker or "")


async def test_watch_sees_what_happens(kit: Kit) -> None:
    a = pulse.Pulse("localhost:1")

    @a.job("watched")
    async def watched() -> None: ...

    kit.use(a)
    seen: list[str] = []
    is_watching = asyncio.Event()

    async def watch() -> None:
        async for transitions in a.watch(topics=["watched"]):
            is_watching.set()
            seen.extend(each.status.value for each in transitions.transitions)
            if "COMPLETED" in seen:
                return

    watching = asyncio.create_task(watch())
    await is_watching.wait()
    await watched.enqueue()
    await kit.adrain()
    await asyncio.wait_for(watching, 10)
    assert seen[-1] == "COMPLETED"
