"""Followers of ends: what they are offered, and that other transitions cost nothing for them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pulse_server.jobs.rules import JobStatus
from pulse_server.wakeups import watchers as module
from pulse_server.wakeups.watchers import WATCH_INTEREST, Transition, Wakeup, Watchers, transition
from tests.fakes.clock import Seconds
from tests.fakes.wakeups import FakeWakeupLine


class Follower:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.missed = 0
        self.is_over = False

    def offer(self, transitions: Iterable[Transition], missed: int = 0) -> None:
        self.heard += [change.job_id for change in transitions]
        self.missed += missed

    def end(self) -> None:
        self.is_over = True


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Seconds:
    clock = Seconds()
    monkeypatch.setattr(module, "lease_clock", clock)
    return clock


def never() -> list[Transition]:
    raise AssertionError("it was put together")


def ends() -> list[Transition]:
    return [
        transition("done", "mail", JobStatus.COMPLETED),
        transition("again", "mail", JobStatus.RETRYING),
        transition("dead", "mail", JobStatus.DEAD_LETTERED),
    ]


def test_follower_is_offered_what_finishes_jobs_and_nothing_else_is_put_together() -> None:
    line, follower = FakeWakeupLine(), Follower()
    watchers = Watchers(line)
    watchers.publish_ends(never)
    watchers.follow(follower)
    watchers.publish(never)
    watchers.publish_ends(ends)
    assert (follower.heard, line.transitions) == (["done", "dead"], [])
    watchers.unfollow(follower)
    watchers.publish_ends(never)


def test_other_servers_are_sent_what_finishes_jobs_while_they_ask_for_it(clock: Seconds) -> None:
    line = FakeWakeupLine()
    watchers = Watchers(line)
    line.deliver(Wakeup(awaiting=True))
    watchers.publish(never)
    watchers.publish_ends(ends)
    assert [change.job_id for change in line.transitions] == ["done", "dead"]
    clock.advance(WATCH_INTEREST.total_seconds())
    watchers.publish_ends(never)


async def test_server_with_a_follower_asks_the_others_again_and_again() -> None:
    line = FakeWakeupLine()
    watchers = Watchers(line)
    await watchers._remind()
    assert (line.watching, line.awaiting) == (0, 0)
    watchers.follow(Follower())
    await watchers._remind()
    assert (line.watching, line.awaiting) == (0, 2)


async def test_server_that_has_just_started_asks_the_others_once() -> None:
    line = FakeWakeupLine()
    watchers = Watchers(line)
    await watchers._remind()
    await watchers._remind()
    assert line.asking == 1


def test_server_with_a_follower_answers_one_that_has_just_started_at_once() -> None:
    """Else jobs that end there before the next reminder are found by a look, half a minute later."""
    line = FakeWakeupLine()
    watchers = Watchers(line)
    line.deliver(Wakeup(asking=True))
    assert (line.watching, line.awaiting) == (0, 0)
    watchers.follow(Follower())
    line.deliver(Wakeup(asking=True))
    assert (line.watching, line.awaiting) == (0, 2)


def test_follower_hears_of_other_servers_and_of_what_was_missed_and_ends_with_this_one() -> None:
    line, follower = FakeWakeupLine(), Follower()
    watchers = Watchers(line)
    watchers.follow(follower)
    line.deliver(Wakeup(transitions=tuple(ends()), missed=3))
    watchers.end_watching()
    assert (follower.heard, follower.missed, follower.is_over) == (["done", "again", "dead"], 3, True)
