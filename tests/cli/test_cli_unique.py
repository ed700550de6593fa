"""Unique jobs and overlaps on the command line."""

from __future__ import annotations

from tests.cli.command_line import CommandLine
from tests.rows import each_row


def test_second_job_of_a_unique_key_is_a_duplicate(pulse: CommandLine, topic: str) -> None:
    options = ["--unique", "shop-7", "--while", "live", "-o", "json"]
    first = pulse("submit", topic, *options).json
    again = pulse("submit", topic, *options).json

    assert (again["id"], again["duplicate"], again["replaced"]) == (first["id"], True, False)
    job = pulse("jobs", "get", first["id"], "-o", "json").json
    assert (job["unique_key"], job["unique_while"]) == ("shop-7", "live")
    assert "shop-7 (until it is finished)" in pulse("jobs", "get", first["id"]).out


def test_waiting_job_is_replaced(pulse: CommandLine, topic: str) -> None:
    options = ["--unique", "shop-7", "--on-conflict", "replace"]
    first = pulse("submit", topic, *options, "-o", "json").json
    result = pulse("submit", topic, *options, "--payload", "2")

    assert "has this payload and these options now" in result.err
    assert pulse("jobs", "get", first["id"], "-o", "json").json["payload"] == 2


@each_row(
    "options, sentence",
    [
        (["--while", "live"], "--while goes with --unique KEY."),
        (["--period", "1m"], "--period goes with --unique KEY."),
        (["--unique", "k", "--count", "2"], "--unique and --count exclude each other"),
        (["--unique", "k", "--on-conflict", "throttle"], "needs a period"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    pulse: CommandLine, topic: str, options: list[str], sentence: str
) -> None:
    result = pulse("submit", topic, *options)
    assert result.code != 0
    assert sentence in result.err


def test_retry_of_many_shows_those_whose_key_another_job_holds(pulse: CommandLine, topic: str) -> None:
    alive = ("submit", topic, "--unique", "shop-7", "--while", "live", "-o", "json")
    first = pulse(*alive).json["id"]
    pulse("jobs", "cancel", first, "--yes")
    pulse(*alive)
    again = ("jobs", "retry", "--status", "CANCELED", "--topic", topic, "--yes")
    shape = pulse(*again, "-o", "json").json
    assert (shape["changed"], shape["locked"], shape["held"]) == (0, 0, 1)
    assert "1 was left as it is: another job holds its unique key." in pulse(*again).out
    assert "had changed status" not in pulse(*again).out


def test_schedule_has_an_overlap(pulse: CommandLine, topic: str) -> None:
    made = pulse("schedules", "create", topic, "--every", "1h", "--overlap", "queue", "-o", "json").json
    assert (made["overlap"], made["queued_for"]) == ("queue", None)
    changed = pulse("schedules", "update", made["id"], "--overlap", "skip", "-o", "json").json
    assert changed["overlap"] == "skip"
    pulse("schedules", "delete", made["id"], "--yes")
