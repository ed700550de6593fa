"""The page of dispatch: which switches there are, and how much waits behind them."""

from datetime import UTC, datetime

import pulse
from pulse_ui.topics.views import dispatch_view

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RATES = pulse.Rates(0, 0, 0, 0)
LATENCY = pulse.Latency(0, 0, 0, 0)


def topic(name: str, ready: int) -> pulse.TopicInfo:
    return pulse.TopicInfo(name, ready, 0, 0, 0, 0, None, RATES, RATES, False, 1, LATENCY, LATENCY)


def status(*paused: str, everything: bool = False) -> pulse.DispatchStatus:
    return pulse.DispatchStatus(everything, "", None, {name: pulse.TopicPause("why", NOW) for name in paused})


def test_paused_topics_come_first_even_if_they_have_no_jobs() -> None:
    board = dispatch_view(status("zebra", "empty"), [topic("mail", 1), topic("zebra", 2)])
    assert [(row.topic, row.is_paused, row.ready) for row in board.topics] == [
        ("empty", True, 0),
        ("zebra", True, 2),
        ("mail", False, 1),
    ]


def test_switch_names_the_user_who_turned_it() -> None:
    paused = pulse.DispatchStatus(True, "", NOW, {"mail": pulse.TopicPause("", NOW, "bob")}, "ann")
    board = dispatch_view(paused, [])

    assert board.paused_by == "ann"
    assert [row.paused_by for row in board.topics] == ["bob"]


def test_ready_jobs_of_paused_topics_are_counted() -> None:
    topics = [topic("mail", 1), topic("photo", 2)]
    assert dispatch_view(status("photo"), topics).held_back == 2
    assert dispatch_view(status(everything=True), topics).held_back == 3
    assert dispatch_view(status(), topics).held_back == 0
