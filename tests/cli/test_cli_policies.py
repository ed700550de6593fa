"""`pulse topics retention`: how long finished jobs are kept."""

from tests.cli.command_line import CommandLine
from tests.rows import each_row


def test_settings_of_the_server_are_listed(pulse: CommandLine) -> None:
    first, *_ = pulse("topics", "retention", "-o", "json").json
    assert first["topic"] is None
    assert (first["keep_completed"], first["keep_dead_lettered"]) == ("7d", "30d")


def test_retention_of_a_topic_is_set_listed_and_returned(pulse: CommandLine, topic: str) -> None:
    done = pulse("topics", "retention", topic, "--completed", "1d", "--canceled", "forever")
    assert f"Jobs on {topic} are kept: COMPLETED 1d, CANCELED forever" in done.out
    assert "DEAD_LETTERED 30d (the server's setting)" in done.out
    rows = {row[0]: row for row in pulse("topics", "retention", "-o", "plain").rows}
    assert rows[topic][1:4] == ["1d", "forever", "default"]
    assert topic in pulse("topics", "retention").out

    back = pulse("topics", "retention", topic, "--default", "-o", "json").json
    assert (back["keep_completed"], back["keep_canceled"]) == ("default", "default")
    assert back["keep_before"] == {"CANCELED": "forever"}, "7d is shorter: not at once"
    pulse("topics", "retention", topic, "--canceled", "forever")
    assert pulse("topics", "retention", topic, "-o", "json").json["keep_before"] == {}


def test_retention_that_is_longer_again_is_returned_at_once(pulse: CommandLine, topic: str) -> None:
    pulse("topics", "retention", topic, "--completed", "1d")
    back = pulse("topics", "retention", topic, "--default", "-o", "json").json
    assert (back["keep_completed"], back["keep_before"], back["set_at"]) == ("default", {}, None)
    assert topic not in pulse("topics", "retention").out


def test_topic_without_a_policy_shows_the_settings(pulse: CommandLine, topic: str) -> None:
    assert "COMPLETED 7d (the server's setting)" in pulse("topics", "retention", topic).out


@each_row(
    "arguments, text",
    [
        (["--completed", "1d"], "Name the topic"),
        (["mail", "--default", "--completed", "1d"], "give it alone"),
        (["mail", "--completed", "soon"], "or forever, or default"),
        (["mail", "--completed", "5s"], "below a minute"),
        (["mail", "--completed", "99999d"], "keep them forever"),
    ],
)
def test_retention_that_cannot_hold_is_refused(pulse: CommandLine, arguments: list[str], text: str) -> None:
    result = pulse("topics", "retention", *arguments)
    assert result.code != 0
    assert text in result.err


def test_topics_are_still_listed_without_a_command(pulse: CommandLine) -> None:
    assert isinstance(pulse("topics", "--limit", "5", "-o", "json").json, list)
