"""What servers tell each other: it fits into a NOTIFY, and is read as it was meant."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pulse_server import tuning
from pulse_server.domain.ids import new_job_id
from pulse_server.domain.jobs import Claim
from pulse_server.domain.status import JobStatus
from pulse_server.domain.transitions import Transition
from pulse_server.postgres.wakeup_messages import Outbox, read
from pulse_server.repos.wakeups import Wakeup

NOON = datetime(2030, 1, 1, 12, 0, 0, 250000, tzinfo=UTC)


def transitions(count: int, error: str = "") -> list[Transition]:
    return [
        Transition(new_job_id(), "mail", JobStatus.RETRYING, number, "w1", error, NOON)
        for number in range(count)
    ]


def tell(**news: object) -> list[Wakeup]:
    """Put the news into the box, and read what comes out of it."""
    nothing: dict[str, object] = {
        "topics": (),
        "ended": (),
        "lapsed": (),
        "gate_changed": False,
        "watching": False,
        "transitions": (),
    }
    outbox = Outbox()
    outbox.add(**(nothing | news))  # type: ignore[arg-type]  # the port names them
    messages = []
    while outbox:
        messages += outbox.take()
    assert all(len(message.encode()) <= tuning.NOTIFY_BYTES for message in messages)
    heard = [read(message) for message in messages]
    return [wakeup for wakeup in heard if wakeup is not None]


def test_wakeup_is_read_as_it_was_meant() -> None:
    claim = Claim(new_job_id(), "w1", 3)

    assert tell(topics={"mail"}, ended={claim}, lapsed={claim}, gate_changed=True, watching=True) == [
        Wakeup(frozenset({"mail"}), (claim,), (claim,), True, True)
    ]


def test_transitions_are_read_as_they_were_meant() -> None:
    told = transitions(2, "böse\t'\"\\ Zeile")

    assert tell(transitions=told) == [Wakeup(frozenset(), transitions=tuple(told))]


def test_many_transitions_go_out_in_several_messages_and_none_is_left_out() -> None:
    told = transitions(3 * tuning.TRANSITIONS_RELAYED, "ß" * tuning.TRANSITION_ERROR_CHARACTERS)

    heard = tell(transitions=told)

    assert len(heard) > 1
    assert [change for wakeup in heard for change in wakeup.transitions] == told
    assert {wakeup.missed for wakeup in heard} == {0}


def test_transitions_past_the_bound_are_counted() -> None:
    heard = tell(transitions=transitions(tuning.TRANSITIONS_WAITING + 7))

    assert sum(len(wakeup.transitions) for wakeup in heard) == tuning.TRANSITIONS_WAITING
    assert sum(wakeup.missed for wakeup in heard) == 7


def test_round_carries_no_more_than_its_share() -> None:
    outbox = Outbox()
    outbox.add((), (), (), False, False, transitions(tuning.TRANSITIONS_RELAYED + 1))

    rounds = [[read(message) for message in outbox.take()] for _ in range(2)]

    counts = [sum(len(heard.transitions) for heard in one if heard) for one in rounds]
    assert counts == [tuning.TRANSITIONS_RELAYED, 1]


def test_dispatch_is_woken_before_anybody_watches() -> None:
    first, *_ = tell(topics={"mail"}, transitions=transitions(1))

    assert first.topics == {"mail"}
    assert first.transitions == ()


def test_too_many_topics_become_look_everywhere_and_watching_is_still_said() -> None:
    (heard,) = tell(topics={f"{'x' * 200}{number}" for number in range(100)}, watching=True)

    assert heard.topics is None
    assert heard.watching


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
