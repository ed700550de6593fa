"""What servers tell each other: it fits into a NOTIFY, and is read as it was meant."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pulse_server import tuning
from pulse_server.domain.ids import new_id
from pulse_server.domain.jobs import Claim
from pulse_server.domain.status import JobStatus
from pulse_server.domain.transitions import Transition
from pulse_server.postgres.wakeup_messages import Outbox, read
from pulse_server.repos.wakeups import Wakeup

NOON = datetime(2030, 1, 1, 12, 0, 0, 250000, tzinfo=UTC)


def transitions(count: int, error: str = "") -> tuple[Transition, ...]:
    return tuple(
        Transition(new_id(), "mail", JobStatus.RETRYING, number, "w1", error, NOON) for number in range(count)
    )


def tell(*wakeups: Wakeup) -> list[Wakeup]:
    """Put them into the box, and read what comes out of it."""
    outbox = Outbox()
    for wakeup in wakeups:
        outbox.add(wakeup)
    messages = []
    while outbox:
        messages += outbox.take()
    assert all(len(message.encode()) <= tuning.NOTIFY_BYTES for message in messages)
    heard = [read(message) for message in messages]
    return [wakeup for wakeup in heard if wakeup is not None]


def test_wakeup_is_read_as_it_was_meant() -> None:
    claim = Claim(new_id(), "w1", 3)

    told = Wakeup(frozenset({"mail"}), (claim,), (claim,), gate_changed=True, watching=True)

    assert tell(told) == [told]


def test_transitions_are_read_as_they_were_meant() -> None:
    told = transitions(2, "böse\t'\"\\ Zeile")

    assert tell(Wakeup(transitions=told)) == [Wakeup(transitions=told)]


def test_many_transitions_go_out_in_several_messages_and_none_is_left_out() -> None:
    told = transitions(3 * tuning.TRANSITIONS_RELAYED, "ß" * tuning.TRANSITION_ERROR_CHARACTERS)

    heard = tell(Wakeup(transitions=told))

    assert len(heard) > 1
    assert tuple(change for wakeup in heard for change in wakeup.transitions) == told
    assert {wakeup.missed for wakeup in heard} == {0}


def test_transitions_past_the_bound_are_counted() -> None:
    heard = tell(Wakeup(transitions=transitions(tuning.TRANSITIONS_WAITING + 7)))

    assert sum(len(wakeup.transitions) for wakeup in heard) == tuning.TRANSITIONS_WAITING
    assert sum(wakeup.missed for wakeup in heard) == 7


def test_round_carries_no_more_than_its_share() -> None:
    outbox = Outbox()
    outbox.add(Wakeup(transitions=transitions(tuning.TRANSITIONS_RELAYED + 1)))

    rounds = [[read(message) for message in outbox.take()] for _ in range(2)]

    counts = [sum(len(heard.transitions) for heard in one if heard) for one in rounds]
    assert counts == [tuning.TRANSITIONS_RELAYED, 1]


def test_dispatch_is_woken_before_anybody_watches() -> None:
    first, *_ = tell(Wakeup(frozenset({"mail"}), transitions=transitions(1)))

    assert first.topics == {"mail"}
    assert first.transitions == ()


def test_too_many_topics_become_look_everywhere_and_watching_is_still_said() -> None:
    (heard,) = tell(Wakeup(frozenset(f"{'x' * 200}{number}" for number in range(100)), watching=True))

    assert heard.topics is None
    assert heard.watching


def test_look_everywhere_covers_the_topics_that_were_named_beside_it() -> None:
    assert tell(Wakeup(frozenset({"mail"})), Wakeup(topics=None)) == [Wakeup(topics=None)]


def test_empty_box_has_nothing_to_say() -> None:
    assert tell() == []


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"topics":[],"ended":[[1]],"lapsed":[[]]}',
        '{"topics":[],"ended":[],"missed":"?"}',
    ],
)
def test_what_cannot_be_understood_is_none(payload: str) -> None:
    assert read(payload) is None


def test_message_of_an_older_server_is_understood() -> None:
    assert read('{"topics":["mail"],"ended":[],"lapsed":[],"gate":true}') == Wakeup(
        frozenset({"mail"}), gate_changed=True
    )
