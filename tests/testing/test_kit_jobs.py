"""Looking at the jobs of a kit, and running them."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

import pulse
from pulse.testing import Kit
from tests.testing import shop

MINUTE = timedelta(minutes=1)


def test_one_finds_the_job_by_its_arguments(pulse_kit: Kit) -> None:
    shop.double.enqueue(2)
    shop.double.enqueue(3)
    assert pulse_kit.one(shop.double, n=2).args == {"n": 2}
    assert [job.args["n"] for job in pulse_kit.all("shop.double")] == [2, 3]
    pulse_kit.none(shop.hourly)


def test_one_lists_what_was_enqueued(pulse_kit: Kit) -> None:
    shop.double.enqueue(2)
    with pytest.raises(
        AssertionError, match=r"0 jobs match shop.double\(n=3\)(?s:.*)shop.double {'n': 2} PENDING"
    ):
        pulse_kit.one(shop.double, n=3)
    with pytest.raises(AssertionError, match="not none"):
        pulse_kit.none(shop.double)
    with pytest.raises(AssertionError, match="There is no job nonsense"):
        pulse_kit.job("nonsense")


def test_def_handler_runs_in_the_thread_of_the_test(pulse_kit: Kit) -> None:
    handle = shop.double.enqueue(2)
    assert pulse_kit.drain() == {"completed": 2}
    assert shop.seen == [threading.current_thread()] * 2
    assert handle.result() == 4
    assert pulse_kit.result(handle) == 4


async def test_async_test_drains_with_await(pulse_kit: Kit) -> None:
    handle = await shop.send_mail.enqueue(to="ada@x")
    await asyncio.to_thread(shop.double.enqueue, 1)
    assert await pulse_kit.adrain() == {"completed": 3}
    assert await handle.result() == "sent to ada@x"


async def test_sync_verb_in_an_event_loop_names_the_other(pulse_kit: Kit) -> None:
    with pytest.raises(pulse.ClientClosed, match=r"await pulse_kit.adrain"):
        pulse_kit.drain()


def test_drain_raises_the_error_of_a_handler_after_it_is_stored(pulse_kit: Kit) -> None:
    shop.s.enqueue("shop.flaky", {"n": 1})
    job = pulse_kit.one(shop.flaky)
    with pytest.raises(ValueError, match="1"):
        pulse_kit.drain()
    assert pulse_kit.due_in(job) == timedelta(seconds=10)
    assert pulse_kit.drain() == {}
    pulse_kit.advance(seconds=11)
    assert pulse_kit.drain(errors="keep") == {"retry": 1}
    assert pulse_kit.due_in(job) == timedelta(seconds=20)
    assert pulse_kit.run(job, attempt=7).delay == timedelta(seconds=640)


def test_last_attempt_makes_a_dead_letter(pulse_kit: Kit) -> None:
    shop.s.enqueue("shop.mail", {"to": "x", "times": 9}, max_attempts=3)
    job = pulse_kit.one(shop.send_mail)
    assert pulse_kit.run(job).outcome == "retry"
    assert pulse_kit.run(job).delay == timedelta(seconds=2)
    ran = pulse_kit.run(job)
    assert (ran.outcome, ran.delay) == ("dead_lettered", None)
    assert isinstance(ran.error, ConnectionError)
    assert "no route" in (pulse_kit.job(job).last_error or "")
    with pytest.raises(AssertionError, match="there is nothing to run"):
        pulse_kit.run(job)


def test_outcomes_that_handlers_mean_are_not_raised(pulse_kit: Kit) -> None:
    for what in ("snooze", "retry", "discard", "return"):
        shop.outcome.enqueue(what)
    counted = pulse_kit.drain()
    assert counted == {"snoozed": 1, "retry": 1, "dead_lettered": 1, "completed": 1}
    waits = [pulse_kit.due_in(job) for job in pulse_kit.all(shop.outcome)[:2]]
    assert waits == [5 * MINUTE, 7 * MINUTE]


def test_steps_sleeps_and_signals_follow_the_clock(pulse_kit: Kit) -> None:
    job = shop.s.enqueue("shop.order", {"item": "book"})
    assert pulse_kit.drain() == {"sleeping": 1}
    pulse_kit.advance(days=2, hours=23)
    assert pulse_kit.drain() == {}
    pulse_kit.advance(hours=2)
    assert pulse_kit.drain() == {"waiting": 1}
    pulse_kit.signal(job, "approved", "Ann")
    assert pulse_kit.drain() == {"completed": 2}
    assert pulse_kit.result(job) == "book charged by Ann"
    assert shop.seen == [("charged", "book"), "Ann"]


def test_signal_that_does_not_come_times_out(pulse_kit: Kit) -> None:
    job = shop.s.enqueue("shop.order", {"item": "book"})
    pulse_kit.drain()
    pulse_kit.advance(days=3)
    pulse_kit.drain()
    pulse_kit.advance(days=2)
    with pytest.raises(pulse.SignalTimeout):
        pulse_kit.drain()
    assert pulse_kit.job(job).status is pulse.JobStatus.RETRYING


def test_advance_runs_jobs_on_the_way(pulse_kit: Kit) -> None:
    job = shop.s.enqueue("shop.order", {"item": "book"})
    pulse_kit.signal(job, "approved", "Ann")
    pulse_kit.advance(days=4, drain=True)
    assert pulse_kit.result(job) == "book charged by Ann"


def test_schedules_fire_only_if_asked(pulse_kit: Kit) -> None:
    pulse_kit.advance(days=1)
    pulse_kit.none(shop.hourly)
    pulse_kit.advance(days=1, schedules=True)
    assert len(pulse_kit.all(shop.hourly)) == 24
    assert pulse_kit.drain() == {"completed": 24}


def test_debounced_job_runs_once_the_period_is_over(pulse_kit: Kit) -> None:
    unique = pulse.Unique(by=["n"], on_conflict="debounce", period=MINUTE, longest=5 * MINUTE)
    first = shop.double.options(unique=unique).enqueue(0)
    pulse_kit.advance(seconds=40)
    second = shop.double.options(unique=unique).enqueue(0)
    assert second.id == first.id
    pulse_kit.advance(seconds=40)
    assert pulse_kit.drain() == {}
    pulse_kit.advance(seconds=21)
    assert pulse_kit.drain() == {"completed": 1}


def test_higher_priority_runs_first(pulse_kit: Kit) -> None:
    for priority in (0, 5, 5):
        shop.double.options(priority=priority).enqueue(0)
    pulse_kit.drain()
    started = sorted(pulse_kit.jobs, key=lambda job: job.started_at or pulse_kit.now)
    assert [job.priority for job in started] == [5, 5, 0]


def test_def_handler_of_an_async_client_enqueues(pulse_kit: Kit) -> None:
    handle = asyncio.run(enqueued(shop.Receipt("ada@x", 5)))
    assert pulse_kit.drain() == {"completed": 2}
    assert pulse_kit.result(handle) == shop.Receipt("ada@x", 5)
    assert pulse_kit.one(shop.send_mail, to="ada@x").status is pulse.JobStatus.COMPLETED


async def enqueued(receipt: shop.Receipt) -> pulse.JobHandle[shop.Receipt]:
    return await shop.receipt.enqueue(receipt=receipt)
