"""Watching: it costs nothing without a watcher, and a slow watcher learns how much it missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.jobs.rules import JobStatus, Progress
from pulse_server.wakeups import watchers as module
from pulse_server.wakeups.watchers import (
    TRANSITION_ERROR_CHARACTERS,
    WATCH_INTEREST,
    WATCH_REMINDER,
    Transition,
    Wakeup,
    Watcher,
    Watchers,
    transition,
)
from tests.eventually import PATIENCE_SECONDS
from tests.fakes.clock import Seconds
from tests.fakes.wakeups import FakeWakeupLine


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    clock = Seconds()
    monkeypatch.setattr(module, "lease_clock", clock)
    monkeypatch.setattr("pulse_server.wakeups.watchers.WATCH_GATHERING", timedelta(0))
    return clock


@pytest.fixture
def line() -> FakeWakeupLine:
    return FakeWakeupLine()


@pytest.fixture
def watchers(line: FakeWakeupLine) -> Watchers:
    return Watchers(line)


def submitted(job_id: str = "a", topic: str = "mail") -> Transition:
    return transition(job_id, topic, JobStatus.PENDING)


@contextmanager
def watching(watchers: Watchers, **wanted: list[str]) -> Iterator[Watcher]:
    with watchers.watching(wanted.get("topics", []), wanted.get("job_ids", [])) as watcher:
        yield watcher


async def next_batch(watcher: Watcher) -> tuple[list[str], int]:
    batches: AsyncIterator[tuple[list[Transition], int]] = watcher.batches()
    async with asyncio.timeout(PATIENCE_SECONDS):
        batch, missed = await anext(batches)
    return [change.job_id for change in batch], missed


def test_without_a_watcher_nothing_is_put_together_or_announced(
    watchers: Watchers, line: FakeWakeupLine
) -> None:
    def never() -> list[Transition]:
        raise AssertionError("the changes were evaluated without a watcher")

    watchers.publish(never)

    assert (line.watching, line.transitions) == (0, [])


async def test_local_watcher_gets_transitions_and_the_line_stays_silent(
    watchers: Watchers, line: FakeWakeupLine
) -> None:
    with watching(watchers) as watcher:
        watchers.publish(lambda: [submitted("a"), submitted("b")])
        assert await next_batch(watcher) == (["a", "b"], 0)
    assert line.transitions == []


async def test_transitions_are_sent_to_servers_that_have_watchers(
    watchers: Watchers, line: FakeWakeupLine, clock: Seconds
) -> None:
    line.deliver(Wakeup(frozenset(), watching=True))
    clock.advance(WATCH_INTEREST.total_seconds() - 1)
    watchers.publish(lambda: [submitted("a")])
    clock.advance(2)
    watchers.publish(lambda: [submitted("b")])

    assert [change.job_id for change in line.transitions] == ["a"]


async def test_others_are_reminded_while_there_is_a_watcher(watchers: Watchers, line: FakeWakeupLine) -> None:
    with watching(watchers):
        await watchers._remind()
    await watchers._remind()

    assert line.watching == 2
    assert WATCH_INTEREST > 2 * WATCH_REMINDER


async def test_transitions_of_other_servers_reach_local_watchers(
    watchers: Watchers, line: FakeWakeupLine
) -> None:
    with watching(watchers) as watcher:
        line.deliver(Wakeup(frozenset(), transitions=(submitted("a"),), missed=3))
        assert await next_batch(watcher) == (["a"], 3)


async def test_filters_keep_the_rest_away(watchers: Watchers) -> None:
    with (
        watching(watchers, topics=["mail"]) as by_topic,
        watching(watchers, job_ids=["b"]) as by_id,
        watching(watchers, topics=["mail"], job_ids=["b"]) as by_both,
        watching(watchers) as everything,
    ):
        watchers.publish(lambda: [submitted("a", "mail"), submitted("b", "sms")])

        assert await next_batch(by_topic) == (["a"], 0)
        assert await next_batch(by_id) == (["b"], 0)
        assert await next_batch(everything) == (["a", "b"], 0)
        assert not by_both._something_new.is_set()


async def test_slow_watcher_learns_how_much_it_missed(
    watchers: Watchers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.wakeups.watchers.WATCHER_BACKLOG", 3)
    with watching(watchers) as watcher:
        for number in range(10):
            watchers.publish(lambda number=number: [submitted(str(number))])  # type: ignore[misc]  # a default
        assert await next_batch(watcher) == (["0", "1", "2"], 7)

        watchers.publish(lambda: [submitted("again")])
        assert await next_batch(watcher) == (["again"], 0)


async def test_watcher_that_left_is_forgotten(watchers: Watchers) -> None:
    with watching(watchers):
        assert watchers.is_watched
    assert not watchers.is_watched


async def test_stop_ends_the_batches_after_what_is_there(watchers: Watchers) -> None:
    with watching(watchers) as watcher, watching(watchers, topics=["other"]) as silent:
        watchers.publish(lambda: [submitted("a")])
        watchers.end_watching()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [len(batch) async for batch, _ in watcher.batches()] == [1]
            assert [batch async for batch in silent.batches()] == []


def test_only_the_first_line_of_an_error_is_published() -> None:
    published = transition("a", "mail", JobStatus.RETRYING, 1, "w1", "boom " * 100 + "\nTraceback")

    assert published.error.startswith("boom")
    assert len(published.error) == TRANSITION_ERROR_CHARACTERS
    assert "\n" not in published.error


def progressed(job_id: str = "a") -> Transition:
    progress = Progress(0.5, "half", "", 1, datetime.now(UTC), None, 0.0)
    return transition(job_id, "mail", JobStatus.RUNNING, 1, "w1")._replace(progress=progress)


def test_progress_is_not_put_together_for_watchers_that_did_not_ask_for_it(
    watchers: Watchers, line: FakeWakeupLine
) -> None:
    def never() -> list[Transition]:
        raise AssertionError("no watcher wants it")

    with watching(watchers):
        line.deliver(Wakeup(watching=True))
        watchers.publish_progress(never)
    assert line.progress == []


async def test_progress_never_takes_the_room_of_transitions_nor_counts_as_missed(watchers: Watchers) -> None:
    with watchers.watching([], [], progress=True) as watcher:
        watchers.publish_progress(lambda: [progressed(str(number)) for number in range(2000)])
        watchers.publish(lambda: [submitted(f"new {number}") for number in range(500)])
        seen, missed = await next_batch(watcher)

    assert missed == 0
    assert sum(job_id.startswith("new") for job_id in seen) == 500
    assert len(seen) == 1000


def test_other_servers_send_progress_for_a_while_after_the_last_reminder(
    watchers: Watchers, line: FakeWakeupLine, clock: Seconds
) -> None:
    line.deliver(Wakeup(watching=True, watching_progress=True))
    watchers.publish_progress(lambda: [progressed()])
    clock.advance(WATCH_INTEREST.total_seconds() + 1)
    watchers.publish_progress(lambda: [progressed()])

    assert len(line.progress) == 1
