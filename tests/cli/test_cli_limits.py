"""`pulse topics limits`, `hold`, `pause` and `pulse lanes`: limits in use, held topics, and lanes."""

from __future__ import annotations

from tests.cli.command_line import CommandLine
from tests.rows import each_row


def test_limits_are_shown_with_what_is_in_use(pulse: CommandLine, topic: str) -> None:
    assert f"{topic} has no limits." in pulse("topics", "limits", topic).out
    pulse("topics", "set", topic, "--running", "5", "--rate", "100/min", "--max-attempts", "3")
    known = pulse("topics", "limits", topic, "-o", "json").json
    assert known["in_force"] == {
        "running": 5,
        "rate": "100/min",
        "pool": None,
        "per_lane": None,
        "lane_rate": None,
        "turns": None,
        "ordered": None,
        "aging": None,
    }
    assert (known["running"], known["started"], known["pool_topics"], known["lanes"]) == (0, 0, [], [])
    rows = {row[0]: row for row in pulse("topics", "limits", "-o", "plain").rows}
    assert rows[topic][1:4] == ["0", "5", "100/min"]
    for screen in (pulse.screen("topics", "limits", columns=140), pulse("topics", "limits", topic)):
        assert "0 of 5" in screen.out
        assert "0 of 100/min" in screen.out
    pulse("topics", "reset", topic)
    assert topic not in pulse("topics", "limits").out


def test_limits_of_a_topic_show_its_pool_and_its_lanes(pulse: CommandLine, topic: str) -> None:
    other, pool = f"{topic}-other", f"{topic}-pool"
    pulse("topics", "set", topic, "--running", "5", "--pool", pool, "--per-lane", "1")
    pulse("topics", "set", other, "--running", "9", "--pool", pool)
    pulse("lanes", "set", topic, "customer-42", "--weight", "3")
    known = pulse("topics", "limits", topic, "-o", "json").json
    assert known["pool_topics"] == sorted([topic, other])
    assert [lane["lane"] for lane in known["lanes"]] == ["customer-42"]
    shown = pulse("topics", "limits", topic).out
    assert f"{pool}, counted together with {other}" in shown
    assert "customer-42" in shown
    assert pulse("topics", "limits", other, "-o", "json").json["in_force"]["running"] == 5, "of the pool"
    row = next(
        line.split() for line in pulse("topics", "show", other).out.splitlines() if "running" in line.split()
    )
    assert row == ["running", "5", "pool", "9", "–", "–"]
    for each in (topic, other):
        pulse("topics", "reset", each)


def test_topic_is_held_and_let_go(pulse: CommandLine, topic: str) -> None:
    pulse("topics", "set", topic, "--running", "5")
    assert "Held until" in pulse("topics", "hold", topic, "--for", "2m").out
    assert "held, in " in pulse.screen("topics", "limits", columns=140).out
    assert "Held until" not in pulse("topics", "unhold", topic).out
    pulse("topics", "reset", topic)


def test_topics_are_paused_and_resumed_by_name(pulse: CommandLine, topic: str) -> None:
    paused = pulse("topics", "pause", topic, "--reason", "mail server is down").out
    assert f"Paused the topic {topic}." in paused
    assert "mail server is down" in pulse("dispatch", "status").out
    assert f"Resumed the topic {topic}." in pulse("topics", "resume", topic, "--reason", "up again").out
    assert topic not in pulse("dispatch", "status").out
    last, first = pulse("audit", "--topic", topic, "-o", "json").json
    assert (first["reason"], last["reason"]) == ("mail server is down", "up again")


def test_lanes_are_shown_and_set(pulse: CommandLine, topic: str) -> None:
    assert "has no lanes" in pulse("lanes", topic).err
    pulse("topics", "set", topic, "--per-lane", "1", "--lane-rate", "10/s")
    done = pulse("lanes", "set", topic, "customer-42", "--weight", "3", "--limit", "5").out
    assert done.strip() == f"Set customer-42 of {topic}: weight 3, at most 5 at once."
    (lane,) = pulse("lanes", topic, "--sort", "share", "-o", "json").json
    assert (lane["lane"], lane["weight"], lane["limit"], lane["waiting"]) == ("customer-42", 3, 5, 0)
    assert "customer-42" in pulse("lanes", topic).out
    pulse("topics", "reset", topic)


def test_job_has_its_lane(pulse: CommandLine, topic: str) -> None:
    job_id = pulse("submit", topic, "--lane", "customer-42", "-o", "plain").out.strip()
    assert "customer-42" in pulse("jobs", "get", job_id).out
    assert pulse("jobs", "get", job_id, "-o", "json").json["lane"] == "customer-42"
    (listed,) = pulse("jobs", "list", "--topic", topic, "-o", "json").json
    assert listed["lane"] == "customer-42"


def test_jobs_of_a_lane_are_listed_and_canceled(pulse: CommandLine, topic: str) -> None:
    ids = {lane: pulse("submit", topic, "--lane", lane, "-o", "plain").out.strip() for lane in "ab"}
    (listed,) = pulse("jobs", "list", "--topic", topic, "--lane", "b", "-o", "json").json
    assert listed["id"] == ids["b"]
    canceled = pulse("jobs", "cancel", "--topic", topic, "--lane", "b", "--yes")
    assert canceled.code == 0
    assert pulse("jobs", "get", ids["b"], "-o", "json").json["status"] == "CANCELED"
    assert pulse("jobs", "get", ids["a"], "-o", "json").json["status"] == "PENDING"
    refused = pulse("jobs", "cancel", "--lane", "a", "--yes")
    assert (refused.code, "give --topic as well" in refused.err) == (2, True)


def test_limit_of_a_lane_needs_lanes_and_a_number(pulse: CommandLine, topic: str) -> None:
    assert "has no lanes" in pulse("lanes", "set", topic, "a", "--limit", "2").err
    refused = pulse("lanes", "set", topic, "a", "--limit", "0")
    assert (refused.code, "it must be from 1 to 1,000,000" in refused.err) == (2, True)


@each_row("weight", ["0", "1001", "x", "1.5", ""])
def test_number_out_of_bounds_is_refused_with_its_bounds(pulse: CommandLine, topic: str, weight: str) -> None:
    refused = pulse("lanes", "set", topic, "customer-42", "--weight", weight)
    assert refused.code == 2
    assert f"'--weight': '{weight}' is not a whole number from 1 to 1,000." in refused.err
