"""Messages between servers: they fit into a NOTIFY, and are read as they were written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pulse_server.base.ids import new_id
from pulse_server.jobs.rules import Claim, JobStatus, Progress
from pulse_server.wakeups.line import (
    NOTIFY_BYTES,
    NOTIFY_ROUND,
    PROGRESS_WAITING,
    TRANSITIONS_RELAYED,
    TRANSITIONS_WAITING,
    WakeupOutbox,
    read,
)
from pulse_server.wakeups.watchers import TRANSITION_ERROR_CHARACTERS, Transition, Wakeup
from tests.rows import each_row

NOON = datetime(2030, 1, 1, 12, 0, 0, 250000, tzinfo=UTC)


def transitions(count: int, error: str = "") -> tuple[Transition, ...]:
    return tuple(
        Transition(new_id(), "mail", JobStatus.RETRYING, number, "w1", error, NOON) for number in range(count)
    )


def delivered(*wakeups: Wakeup) -> list[Wakeup]:
    """Put them into the box, and read what comes out of it in no time, however busy the machine is."""
    outbox = WakeupOutbox(clock=lambda: 0.0)
    for wakeup in wakeups:
        outbox.add(wakeup)
    messages = []
    while outbox:
        messages += outbox.take()
        outbox.sent()
    assert all(len(message.encode()) <= NOTIFY_BYTES for message in messages)
    heard = [read(message) for message in messages]
    return [wakeup for wakeup in heard if wakeup is not None]


def test_wakeup_is_read_as_it_was_meant() -> None:
    claim = Claim(new_id(), "w1", 3, 3)

    sent = Wakeup(frozenset({"mail"}), (claim,), (claim,), gate_changed=True, watching=True, asking=True)

    assert delivered(sent) == [sent]


def test_transitions_are_read_as_they_were_meant() -> None:
    sent = transitions(2, "böse\t'\"\\ Zeile")

    assert delivered(Wakeup(transitions=sent)) == [Wakeup(transitions=sent)]


def test_many_transitions_go_out_in_several_messages_and_none_is_left_out() -> None:
    sent = transitions(3 * TRANSITIONS_RELAYED, "ß" * TRANSITION_ERROR_CHARACTERS)

    heard = delivered(Wakeup(transitions=sent))

    assert len(heard) > 1
    assert tuple(change for wakeup in heard for change in wakeup.transitions) == sent
    assert {wakeup.missed for wakeup in heard} == {0}


def test_transitions_past_the_bound_are_counted() -> None:
    heard = delivered(Wakeup(transitions=transitions(TRANSITIONS_WAITING + 7)))

    assert sum(len(wakeup.transitions) for wakeup in heard) == TRANSITIONS_WAITING
    assert sum(wakeup.missed for wakeup in heard) == 7


def test_round_carries_no_more_than_its_share() -> None:
    outbox = WakeupOutbox()
    outbox.add(Wakeup(transitions=transitions(TRANSITIONS_RELAYED + 1)))

    rounds = [[read(message) for message in outbox.take()] for _ in range(2)]

    counts = [sum(len(heard.transitions) for heard in one if heard) for one in rounds]
    assert counts == [TRANSITIONS_RELAYED, 1]


def test_dispatch_is_woken_before_anybody_watches() -> None:
    first, *_ = delivered(Wakeup(frozenset({"mail"}), transitions=transitions(1)))

    assert first.topics == {"mail"}
    assert first.transitions == ()


def test_too_many_topics_become_look_everywhere_and_watching_is_still_sent() -> None:
    (heard,) = delivered(Wakeup(frozenset(f"{'x' * 200}{number}" for number in range(100)), watching=True))

    assert heard.topics is None
    assert heard.watching


def claims(count: int, worker_id: str = "w1") -> tuple[Claim, ...]:
    return tuple(Claim(new_id(), worker_id, 1, 1) for _ in range(count))


@each_row("worker_id", ["w1", "ü" * 255])
@each_row("count", [251, 5000])
def test_every_ended_claim_is_named_in_as_many_messages_as_it_takes(count: int, worker_id: str) -> None:
    ended, lapsed = claims(count, worker_id), claims(count, worker_id)

    heard = delivered(Wakeup(frozenset({"mail"}), ended=ended, lapsed=lapsed))

    assert heard[0].topics == {"mail"}
    assert tuple(claim for wakeup in heard for claim in wakeup.ended) == ended
    assert tuple(claim for wakeup in heard for claim in wakeup.lapsed) == lapsed
    assert not any(wakeup.claims_unknown for wakeup in heard)


def test_round_carries_a_bounded_number_of_messages() -> None:
    outbox = WakeupOutbox()
    outbox.add(Wakeup(ended=claims(10_000)))

    rounds = []
    while outbox:
        rounds.append(len(outbox.take()))
        outbox.sent()

    assert len(rounds) > 1
    assert max(rounds) == NOTIFY_ROUND


def test_claims_of_a_round_that_was_not_sent_are_in_the_next() -> None:
    outbox = WakeupOutbox()
    first, second = claims(300), claims(1)
    outbox.add(Wakeup(frozenset({"mail"}), ended=first))

    outbox.take()
    outbox.add(Wakeup(ended=second))
    outbox.put_back()
    heard = [wakeup for message in outbox.take() if (wakeup := read(message))]

    assert heard[0].topics is None
    assert tuple(claim for wakeup in heard for claim in wakeup.ended) == first + second


def test_claims_that_waited_for_a_lease_are_not_named_but_looked_up() -> None:
    now = 0.0
    outbox = WakeupOutbox(timedelta(seconds=30), clock=lambda: now)
    outbox.add(Wakeup(ended=claims(1), lapsed=claims(1)))
    now = 29.0
    recent = claims(1)
    outbox.add(Wakeup(ended=recent))
    now = 31.0

    (heard,) = [read(message) for message in outbox.take()]

    assert heard == Wakeup(ended=recent, claims_unknown=True)


def test_claims_past_the_bound_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_server.wakeups.line.ENDED_WAITING", 1000)

    assert delivered(Wakeup(ended=claims(1001))) == [Wakeup(claims_unknown=True)]


def test_look_everywhere_covers_the_topics_that_were_named_beside_it() -> None:
    assert delivered(Wakeup(frozenset({"mail"})), Wakeup(topics=None)) == [Wakeup(topics=None)]


def test_empty_outbox_has_no_messages() -> None:
    assert delivered() == []


@each_row(
    "payload",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"topics":[],"ended":[[1]],"lapsed":[[]]}',
        '{"topics":[],"ended":[],"missed":"?"}',
        '{"topics":[],"ended":[],"missed":-1}',
        '{"topics":[],"ended":[],"missed":99999999999}',
        '{"topics":[],"ended":[],"missed":1.5}',
        '{"topics":[1],"ended":[]}',
        '{"topics":[["mail"]],"ended":[]}',
        '{"topics":["\\ud800"],"ended":[]}',
        '{"topics":{"mail":1,"x":2},"ended":7}',
        '{"topics":[],"ended":[["j","w",true,1]]}',
        '{"topics":[],"ended":[["j","w","1",1]]}',
        '{"topics":[],"ended":[[7,"w",1,1]]}',
        '{"topics":[],"ended":[["j","w",1,99999999999]]}',
        '{"topics":[],"ended":[["j","w",1,1,1]]}',
        '{"topics":[],"ended":[],"levels":[["mail","high",1]]}',
        '{"topics":[],"ended":[],"levels":[["mail",1,NaN]]}',
        '{"topics":[],"ended":[],"levels":[["mail",1,1e999]]}',
        '{"topics":[],"ended":[],"levels":[["mail",1,' + "9" * 4000 + "]]}",
        '{"topics":[],"ended":[],"levels":[["mail",1,' + "9" * 5000 + "]]}",
        "[" * 7500,
        '{"topics":' + "[" * 3000 + "]" * 3000 + ',"ended":[]}',
        *(
            '{"topics":[],"ended":[],"transitions":[' + entry + "]}"
            for entry in (
                '["j","mail","RUNNING","1","w","",1]',
                '["j","mail","RUNNING",-1,"w","",1]',
                '["j","mail","RUNNING",1,7,"",1]',
                '["j","mail","RUNNING",1,"w",null,1]',
                '["j","mail","RUNNING",1,"w","",null]',
                '["j","mail","RUNNING",1,"w","",1e300]',
                '["j","mail","RUNNING",1,"w","",-1]',
                '["j","mail","FLYING",1,"w","",1]',
                '["j","mail",["RUNNING"],1,"w","",1]',
                '[{"j":1},"mail","RUNNING",1,"w","",1]',
                '["j","\\udfff","RUNNING",1,"w","",1]',
                '["j","' + "m" * 2000 + '","RUNNING",1,"w","",1]',
            )
        ),
        *(
            '{"topics":[],"ended":[],"progress":[' + entry + "]}"
            for entry in (
                '["j","mail",1,"w",1,"half","",1,null,0]',
                '["j","mail",1,"w",1,NaN,"",1,null,0]',
                '["j","mail",1,"w",1,0.5,7,1,null,0]',
                '["j","mail",1,"w",1,0.5,"","noon",null,0]',
                '["j","mail",1,"w",1,0.5,"",1,null,null]',
            )
        ),
    ],
)
def test_what_cannot_be_understood_is_none(payload: str) -> None:
    assert read(payload) is None


def test_message_of_an_older_server_is_understood() -> None:
    assert read('{"topics":["mail"],"ended":[],"lapsed":[],"gate":true}') == Wakeup(
        frozenset({"mail"}), gate_changed=True
    )


def progressed(job_id: str, fraction: float | None = 0.5) -> Transition:
    progress = Progress(fraction, "böse\t'\"\\ Zeile", "", 3, NOON, NOON, 0.25)
    return Transition(job_id, "mail", JobStatus.RUNNING, 3, "w1", "", NOON, progress)


def test_progress_is_read_as_it_was_meant_and_is_no_transition_for_older_servers() -> None:
    sent = (progressed("a"), progressed("b", None))

    assert delivered(Wakeup(progress=sent, watching=True, watching_progress=True)) == [
        Wakeup(watching=True, watching_progress=True),
        Wakeup(progress=sent),
    ]


def test_newest_progress_of_each_job_is_sent_and_what_does_not_fit_is_not_counted() -> None:
    many = tuple(progressed(new_id()) for _ in range(2 * PROGRESS_WAITING))
    newest = progressed(many[0].job_id, 0.75)

    heard = delivered(Wakeup(progress=many), Wakeup(progress=(newest,)))
    seen = [change for wakeup in heard for change in wakeup.progress]

    assert seen == [newest, *many[1:PROGRESS_WAITING]]
    assert sum(wakeup.missed for wakeup in heard) == 0
