"""`pulse topics policy`: how jobs run, who decides it, and how it is handed back."""

import grpc
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from tests.cli.command_line import CommandLine
from tests.rows import each_row


def test_settings_of_the_server_come_first(pulse: CommandLine) -> None:
    first, *_ = pulse("topics", "policy", "-o", "json").json
    assert first["topic"] is None
    assert first["effective"] == {
        "max_attempts": 25,
        "backoff": "first=1s,factor=2,longest=2h,jitter=0.2",
        "timeout": None,
        "max_crashes": 5,
    }
    table = pulse.screen("topics", "policy", columns=140).out
    assert "(all others)" in table
    assert "1s, then ×2, up to 2h, ±20%" in table


def test_policy_is_set_shown_and_handed_back(pulse: CommandLine, topic: str) -> None:
    backoff = "first=2s,factor=3,longest=6h,jitter=0.1"
    limits = ["--attempt-timeout", "2m", "--max-crashes", "2"]
    shown = pulse("topics", "policy", topic, "--max-attempts", "40", "--backoff", backoff, *limits).out
    for words in (topic, "40", "2s, then ×3, up to 6h, ±10%", "2m", "OPERATOR", "CODE", "SERVER"):
        assert words in shown
    assert f"until it is handed back: pulse topics policy {topic} --default" in shown

    known = pulse("topics", "policy", topic, "-o", "json").json
    assert known["operator"] == {
        "max_attempts": 40,
        "backoff": backoff,
        "timeout": "2m",
        "max_crashes": 2,
    }
    assert known["effective"] == known["operator"]
    assert known["set_at"] is not None
    rows = {row[0]: row for row in pulse("topics", "policy", "-o", "plain").rows}
    assert rows[topic][1:5] == ["40", backoff, "2m", "2"]

    one = pulse("topics", "policy", topic, "--max-attempts", "default", "-o", "json").json
    assert (one["operator"]["max_attempts"], one["effective"]["max_attempts"]) == (None, 25)
    assert one["operator"]["timeout"] == "2m"
    back = pulse("topics", "policy", topic, "--default", "-o", "json").json
    assert (set(back["operator"].values()), back["set_at"]) == ({None}, None)
    assert topic not in pulse("topics", "policy").out


def test_operator_and_code_are_shown_side_by_side(pulse: CommandLine, address: str, topic: str) -> None:
    run = pb.RunPolicy(max_attempts=8, timeout=Duration(seconds=90))
    declared = [pb.DeclaredPolicy(topic=topic, run=run)]
    with grpc.insecure_channel(address) as channel:
        PulseServiceStub(channel).DeclareTopicPolicies(
            pb.DeclareTopicPoliciesRequest(worker_id="mailer-1", policies=declared)
        )
    pulse("topics", "policy", topic, "--max-attempts", "40")
    known = pulse("topics", "policy", topic, "-o", "json").json
    assert (known["declared"]["max_attempts"], known["declared_by"]) == (8, "mailer-1")
    assert (known["effective"]["max_attempts"], known["effective"]["timeout"]) == (40, "1m30s")
    lines = pulse("topics", "policy", topic).out.splitlines()
    assert [line.split() for line in lines if line.strip().startswith("Attempts")] == [
        ["Attempts", "40", "40", "8", "25"]
    ]
    assert any("declared by mailer-1" in line for line in lines)
    back = pulse("topics", "policy", topic, "--default", "-o", "json").json
    assert back["effective"]["max_attempts"] == 8


def test_policy_and_retention_are_listed_apart(pulse: CommandLine, topic: str) -> None:
    pulse("topics", "policy", topic, "--max-crashes", "2")
    assert topic not in pulse("topics", "retention").out
    pulse("topics", "retention", topic, "--completed", "1d")
    pulse("topics", "policy", topic, "--default")
    assert topic in pulse("topics", "retention").out
    assert topic not in pulse("topics", "policy").out


def test_topic_without_a_policy_shows_what_holds(pulse: CommandLine, topic: str) -> None:
    shown = pulse("topics", "policy", topic).out
    assert "1s, then ×2, up to 2h, ±20%" in shown
    assert "No operator has set and no worker has declared anything" in shown


@each_row(
    "arguments, text",
    [
        (["--max-attempts", "8"], "Name the topic"),
        (["mail", "--default", "--max-attempts", "8"], "give it alone"),
        (["mail", "--max-attempts", "many"], "is not a whole number, such as 8, or default"),
        (
            ["mail", "--max-attempts", "0"],
            "'--max-attempts': '0' is not a whole number from 1 to 1,000, or def",
        ),
        (["mail", "--max-attempts", "1001"], "'1001' is not a whole number from 1 to 1,000, or default."),
        (
            ["mail", "--max-crashes", "100000"],
            "'--max-crashes': '100000' is not a whole number from 1 to 1,000",
        ),
        (["mail", "--attempt-timeout", "soon"], "or default"),
        (["mail", "--attempt-timeout", "0s"], "'--attempt-timeout': '0s' is out of bounds: longer than 0s"),
        (
            ["mail", "--attempt-timeout", "3651d"],
            "'3651d' is out of bounds: longer than 0s, and at most 3650d",
        ),
        (["mail", "--backoff", "fast"], "write for example first=2s"),
        (["mail", "--backoff", "first=2s,factor=500"], "number from 1 to 100"),
        (["mail", "--backoff", "first=2h,longest=1h"], "is shorter than first"),
    ],
)
def test_policy_that_cannot_hold_is_refused_with_a_sentence(
    pulse: CommandLine, arguments: list[str], text: str
) -> None:
    result = pulse("topics", "policy", *arguments)
    assert result.code != 0
    assert text in result.err
    assert len(result.err.splitlines()) == 1


def test_policy_may_have_the_largest_numbers(pulse: CommandLine, topic: str) -> None:
    numbers = ["--max-attempts", "1000", "--max-crashes", "1000", "--attempt-timeout", "3650d"]
    known = pulse("topics", "policy", topic, *numbers, "-o", "json").json["operator"]
    assert (known["max_attempts"], known["max_crashes"], known["timeout"]) == (1000, 1000, "3650d")
    pulse("topics", "policy", topic, "--default")
