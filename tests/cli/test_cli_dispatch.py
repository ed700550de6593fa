"""`pulse dispatch`, piped and at a terminal."""

from collections.abc import Iterator

import pytest

from tests.cli.command_line import CommandLine, until
from tests.rows import each_row


@pytest.fixture
def switch(pulse: CommandLine) -> Iterator[CommandLine]:
    """`pulse`, with everything running again afterwards: other tests share the server."""
    yield pulse
    pulse("dispatch", "resume")


def test_nothing_is_paused_at_first(pulse: CommandLine) -> None:
    assert "nothing is paused" in pulse("dispatch", "status").out


def test_pause_of_a_topic_shows_reason_and_time(pulse: CommandLine, topic: str) -> None:
    result = pulse("dispatch", "pause", "--topic", topic, "--reason", "mail is down")
    assert f"pulse dispatch resume --topic {topic}" in result.out
    shown = pulse("dispatch", "status").out
    assert topic in shown
    assert "because: mail is down" in shown
    (paused,) = pulse("dispatch", "status", "-o", "json").json["topics"]
    assert paused["topic"] == topic
    assert pulse("dispatch", "resume", "--topic", topic, "-o", "json").json["topics"] == []


def test_pause_of_a_topic_without_workers_and_jobs_hints_at_a_wrong_name(
    switch: CommandLine, topic: str
) -> None:
    said = "has no worker and no jobs. Is it spelled right? See: pulse topics"
    result = switch("dispatch", "pause", "--topic", topic)
    assert (result.code, result.err) == (0, f"{topic} {said}\n")
    assert switch("submit", topic).code == 0
    until(switch, ["dispatch", "status"], lambda shape: shape["topics"][0]["held_back"] == 1)
    assert switch("dispatch", "pause", "--topic", topic).err == ""
    assert switch("dispatch", "resume", "--topic", topic).err == ""


def test_pause_of_everything_at_a_terminal(switch: CommandLine) -> None:
    assert "Paused everything" in switch.screen("dispatch", "pause", "--reason", "maintenance", "--yes").out
    assert "\x1b[33mPaused" in switch.screen("dispatch", "status").out
    assert switch("dispatch", "status", "-o", "json").json["reason"] == "maintenance"
    assert "Resumed everything" in switch.screen("dispatch", "resume").out


def test_resume_of_everything_names_the_topics_that_stay_paused(switch: CommandLine, topic: str) -> None:
    switch("dispatch", "pause", "--topic", topic)
    switch("dispatch", "pause", "--yes")
    assert "But everything is still paused" in switch("dispatch", "resume", "--topic", topic).out
    switch("dispatch", "pause", "--topic", topic)
    assert f"Still paused by name: {topic}" in switch("dispatch", "resume").out
    switch("dispatch", "resume", "--topic", topic)


def test_plain_status_is_a_line_for_each_key(pulse: CommandLine) -> None:
    rows = pulse("dispatch", "status", "-o", "plain").rows
    assert [row[0] for row in rows] == ["paused", "reason", "paused_at", "paused_by", "held_back", "topics"]


def test_status_shows_how_many_jobs_wait(switch: CommandLine, topic: str) -> None:
    switch("dispatch", "pause", "--topic", topic)
    assert "No ready jobs wait" in switch("dispatch", "status").out
    switch("submit", topic, "--count", "3")
    switch("submit", topic, "--delay", "1h")  # waits, but not for this
    (paused,) = until(switch, ["dispatch", "status"], lambda shape: shape["topics"][0]["held_back"] == 3)[
        "topics"
    ]
    assert paused["topic"] == topic
    assert "3 ready jobs wait, the oldest for " in switch("dispatch", "status").out
    switch("dispatch", "pause", "--yes")
    assert until(switch, ["dispatch", "status"], lambda shape: shape["held_back"] >= 3)["paused"] is True
    switch("dispatch", "resume", "--topic", topic)


def test_pause_of_everything_asks_first(switch: CommandLine) -> None:
    result = switch("dispatch", "pause")
    assert result.code == 2
    assert "Pause all topics?" in result.err
    assert "add --yes" in result.err
    assert not switch("dispatch", "status", "-o", "json").json["paused"]


def test_several_topics_are_paused_and_resumed_at_once(switch: CommandLine, topic: str) -> None:
    topics = [f"{topic}-a", f"{topic}-b"]
    named = [word for name in topics for word in ("--topic", name)]
    result = switch("dispatch", "pause", *named)
    assert f"Resume with: pulse dispatch resume {' '.join(named)}" in result.out
    paused = switch("dispatch", "status", "-o", "json").json["topics"]
    assert {*topics} <= {one["topic"] for one in paused}
    assert f"Resumed the topics {', '.join(topics)}." in switch("dispatch", "resume", *named).out
    paused = switch("dispatch", "status", "-o", "json").json["topics"]
    assert not {*topics} & {one["topic"] for one in paused}


@each_row(
    "command",
    [
        ("audit", "--topic", "a", "--topic", "b"),
        ("audit", "--method", "SubmitJob", "--method", "CancelJob"),
        ("dead-letters", "--topic", "a", "--topic", "b"),
        ("workflows", "list", "--status", "failed", "--status", "running"),
    ],
)
def test_filter_with_one_value_refuses_a_second(pulse: CommandLine, command: tuple[str, ...]) -> None:
    result = pulse(*command)
    assert result.code == 2
    assert f"{command[-2]} is given 2 times, and takes one value here" in result.err
