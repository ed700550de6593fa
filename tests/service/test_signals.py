"""Signals: this replica first, the others only where it cannot help itself."""

from __future__ import annotations

from pulse_server.domain.jobs import Claim
from pulse_server.repos.wakeups import Wakeup
from pulse_server.service.signals import Signals
from tests.fakes.replica import Replica
from tests.fakes.wakeups import FakeDispatcher, FakeWakeupLine

CLAIM = Claim("j", "A", 1)


def test_work_that_a_worker_here_can_take_is_not_announced() -> None:
    replica = Replica(dispatcher=FakeDispatcher(has_room_for={"email"}))

    replica.signals.ready({"email"})

    assert replica.dispatcher.woken == [{"email"}]
    assert replica.line.topics == []


def test_only_the_topics_that_nobody_here_can_take_are_announced() -> None:
    replica = Replica(dispatcher=FakeDispatcher(has_room_for={"email"}))

    replica.signals.ready({"email", "sms"})

    assert replica.line.topics == [{"sms"}]


def test_replica_without_dispatch_announces_everything() -> None:
    line = FakeWakeupLine()

    Signals(line).ready({"email"})

    assert line.topics == [{"email"}]


def test_ended_claims_are_told_here_and_elsewhere(replica: Replica) -> None:
    replica.signals.ended([CLAIM])

    assert replica.dispatcher.stopped == [CLAIM]
    assert replica.line.ended == [{CLAIM}]


def test_nothing_is_said_about_nothing(replica: Replica) -> None:
    replica.signals.ready(set())
    replica.signals.ended([])

    assert (replica.dispatcher.woken, replica.line.topics, replica.line.ended) == ([], [], [])


def test_wakeup_of_another_replica_reaches_dispatch_and_is_not_passed_on(replica: Replica) -> None:
    replica.line.deliver(Wakeup(frozenset({"sms"}), (CLAIM,)))

    assert replica.dispatcher.woken == [{"sms"}]
    assert replica.dispatcher.stopped == [CLAIM]
    assert (replica.line.topics, replica.line.ended) == ([], [])


def test_wakeup_without_topics_means_everywhere(replica: Replica) -> None:
    replica.line.deliver(Wakeup(topics=None))

    assert replica.dispatcher.woken == [None]


def test_wakeup_before_dispatch_is_there_is_dropped() -> None:
    line = FakeWakeupLine()
    Signals(line)

    line.deliver(Wakeup(topics=None))
