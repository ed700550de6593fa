"""Levels in the messages between servers: which topics need no full look. ADR-0055"""

from __future__ import annotations

import json

from pulse_server.jobs.rules import Level
from pulse_server.wakeups.line import NOTIFY_BYTES, WakeupOutbox, read
from pulse_server.wakeups.watchers import Wakeup

MAIL = frozenset({"mail"})


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def heard(*wakeups: Wakeup, seconds_later: float = 0.0) -> Wakeup:
    """What another server reads of one message with all of them."""
    clock = Clock()
    outbox = WakeupOutbox(clock=clock)
    for wakeup in wakeups:
        outbox.add(wakeup)
    clock.now += seconds_later
    (message,) = outbox.take()
    assert len(message.encode()) <= NOTIFY_BYTES
    wakeup = read(message)
    assert wakeup is not None
    return wakeup


def test_level_ages_until_its_message_is_sent() -> None:
    sent = Wakeup(topics=MAIL, levels=(Level("mail", 5, 0.25),))

    assert heard(sent, seconds_later=1.5).levels == (Level("mail", 5, 1.75),)


def test_oldest_job_of_a_level_counts() -> None:
    sent = [Wakeup(topics=MAIL, levels=(Level("mail", 0, age),)) for age in (1.0, 9.0, 2.0)]

    assert heard(*sent).levels == (Level("mail", 0, 9.0),)


def test_topic_that_was_once_announced_without_a_level_has_none() -> None:
    sms = Wakeup(topics=frozenset({"sms"}), levels=(Level("sms", 0, 0.0),))

    wakeup = heard(Wakeup(topics=MAIL, levels=(Level("mail", 0, 0.0),)), Wakeup(topics=MAIL), sms)

    assert wakeup.topics == {"mail", "sms"}
    assert wakeup.levels == (Level("sms", 0, 0.0),)


def test_levels_that_do_not_fit_are_left_out() -> None:
    levels = tuple(Level("mail", priority, 0.0) for priority in range(900))

    wakeup = heard(Wakeup(topics=MAIL, levels=levels))

    assert wakeup == Wakeup(topics=MAIL)


def test_levels_without_bound_become_a_look_everywhere() -> None:
    levels = tuple(Level("mail", priority, 0.0) for priority in range(5000))

    assert heard(Wakeup(topics=MAIL, levels=levels)).topics is None


def test_message_that_may_not_have_left_is_repeated_without_levels() -> None:
    outbox = WakeupOutbox()
    outbox.add(Wakeup(topics=MAIL, levels=(Level("mail", 0, 0.0),)))
    outbox.take()
    outbox.put_back()
    (message,) = outbox.take()

    assert read(message) == Wakeup(topics=None)


def test_older_server_finds_the_topics_where_it_looks_for_them() -> None:
    outbox = WakeupOutbox()
    outbox.add(Wakeup(topics=MAIL, levels=(Level("mail", 0, 0.0),)))
    (message,) = outbox.take()

    assert json.loads(message)["topics"] == ["mail"]


def test_message_of_an_older_server_has_no_levels() -> None:
    wakeup = read('{"topics":["mail"],"ended":[]}')

    assert wakeup is not None
    assert (wakeup.topics, wakeup.levels) == (MAIL, ())
