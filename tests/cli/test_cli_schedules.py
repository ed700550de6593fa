"""`pulse schedules`, piped and at a terminal."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import pulse as pulse_sdk
from tests.cli.command_line import CommandLine, ended
from tests.rows import each_row


@pytest.fixture
def nightly(pulse: CommandLine, topic: str) -> str:
    """The name of a schedule that fires every hour."""
    name = f"nightly-{topic}"
    options = ["--every", "1h", "--name", name, "--payload", '{"a": 1}']
    assert pulse("schedules", "create", topic, *options).code == 0
    return name


def test_created_schedule_has_what_was_asked_for(pulse: CommandLine, topic: str) -> None:
    options = ["--cron", "0 9 * * 1-5", "--tz", "Europe/Paris", "--priority", "3", "--max-attempts", "2"]
    more = ["--catch-up", "skip", "--metadata", "a=b", "--payload", "[1]", "-o", "json"]
    made = pulse("schedules", "create", topic, *options, *more).json
    assert (made["kind"], made["cron"], made["tz"]) == ("cron", "0 9 * * 1-5", "Europe/Paris")
    assert (made["priority"], made["max_attempts"], made["catch_up"]) == (3, 2, "skip")
    assert (made["metadata"], made["payload"], made["at"], made["every"]) == ({"a": "b"}, [1], None, None)


def test_limit_of_the_start_is_given_shown_and_removed(pulse: CommandLine, topic: str) -> None:
    options = ["--every", "1h", "--priority", "3", "--start-within", "90m"]
    made = pulse("schedules", "create", topic, *options, "-o", "json").json
    assert made["start_within"] == "1h30m"
    assert "Start within  1h30m" in pulse("schedules", "get", made["id"]).out
    unlimited = pulse("schedules", "update", made["id"], "--start-within", "0s", "-o", "json").json
    assert (unlimited["start_within"], unlimited["priority"]) == (None, 3)
    assert "Start within" not in pulse("schedules", "get", made["id"]).out


def test_created_cron_schedule_shows_its_next_fires(pulse: CommandLine, topic: str) -> None:
    result = pulse("schedules", "create", topic, "--cron", "@daily")
    assert "Next fires" in result.out
    assert result.out.count("00:00:00") >= 5


def test_list_has_the_schedule(pulse: CommandLine, nightly: str) -> None:
    rows = pulse("schedules", "list", "--all", "-o", "plain").rows
    (row,) = [row for row in rows if row[1] == nightly]
    assert row[3:9] == ["interval", "", "1h", "", "", "false"]
    table = pulse.screen("schedules", "list", "--all", columns=100).out
    assert nightly in table
    assert "every 1h" in table


def test_get_shows_everything(pulse: CommandLine, nightly: str, topic: str) -> None:
    shown = pulse("schedules", "get", nightly).out
    for words in (nightly, topic, "every 1h", "Next fire", '"a": 1'):
        assert words in shown
    by_name = pulse("schedules", "get", nightly, "-o", "json").json
    assert pulse("schedules", "get", by_name["id"], "-o", "json").json == by_name


def test_json_of_a_schedule_has_the_documented_keys(pulse: CommandLine, nightly: str) -> None:
    from tools.cli_shapes import SHAPES

    documented = next(shape for title, shape in SHAPES.items() if title.startswith("A schedule"))
    assert list(pulse("schedules", "get", nightly, "-o", "json").json) == list(documented)


def test_same_name_again_is_refused_unless_it_is_to_replace(
    pulse: CommandLine, nightly: str, topic: str
) -> None:
    other = ["schedules", "create", topic, "--every", "2h", "--name", nightly]
    assert pulse(*other).code == 1
    assert pulse(*other, "--replace", "-o", "json").json["every"] == "2h"


def test_update_changes_what_is_given_and_leaves_the_rest(pulse: CommandLine, nightly: str) -> None:
    changed = pulse("schedules", "update", nightly, "--every", "90m", "--priority", "4", "-o", "json").json
    assert (changed["every"], changed["priority"], changed["payload"]) == ("1h30m", 4, {"a": 1})


def test_update_of_nothing_is_misuse(pulse: CommandLine, nightly: str) -> None:
    result = pulse("schedules", "update", nightly)
    assert result.code == 2
    assert "Give what to change" in result.err


def test_pause_and_resume(pulse: CommandLine, nightly: str) -> None:
    assert f"pulse schedules resume {nightly}" in pulse("schedules", "pause", nightly).out
    assert "paused" in pulse("schedules", "get", nightly).out
    (resumed,) = pulse("schedules", "resume", nightly, "-o", "json").json
    assert resumed["paused"] is False


def test_schedule_that_fires_once_can_be_resumed(pulse: CommandLine, topic: str) -> None:
    made = pulse("schedules", "create", topic, "--at", "2040-01-01T00:00", "-o", "json").json
    pulse("schedules", "pause", made["id"])
    assert pulse("schedules", "resume", made["id"]).code == 0


def test_fire_makes_a_job_that_fires_lists(pulse: CommandLine, nightly: str) -> None:
    assert "has not fired yet" in pulse("schedules", "fires", nightly).err
    job_id = pulse("schedules", "fire", nightly, "-o", "plain").out.strip()
    (fire,) = pulse("schedules", "fires", nightly, "-o", "json").json
    assert (fire["job_id"], fire["status"]) == (job_id, "PENDING")
    assert job_id in pulse.screen("schedules", "fires", nightly).out


def test_preview_of_a_thought_stores_nothing(pulse: CommandLine) -> None:
    def ids() -> list[str]:  # the schedules of other tests fire meanwhile
        return [row[0] for row in pulse("schedules", "list", "--all", "-o", "plain").rows]

    before = ids()
    rows = pulse("schedules", "preview", "--cron", "30 4 1 1 *", "--count", "2", "-o", "plain").rows
    assert [row[0][4:] for row in rows] == ["-01-01T04:30:00Z"] * 2
    assert ids() == before


def test_preview_of_a_schedule_that_is_there(pulse: CommandLine, nightly: str) -> None:
    assert len(pulse("schedules", "preview", nightly, "-o", "json").json) == 5
    assert "in 1h" in pulse.screen("schedules", "preview", nightly).out


def test_delete_asks_first(pulse: CommandLine, nightly: str) -> None:
    with pulse.terminal("schedules", "delete", nightly) as child:
        child.expect("Delete the schedule")
        child.sendline("n")
        assert ended(child) == 1
    assert pulse("schedules", "get", nightly).code == 0
    with pulse.terminal("schedules", "delete", nightly) as child:
        child.expect("Delete the schedule")
        child.sendline("y")
        assert ended(child) == 0
    assert pulse("schedules", "get", nightly).code == 3


def test_delete_in_a_pipe_requires_yes(pulse: CommandLine, nightly: str) -> None:
    assert "--yes" in pulse("schedules", "delete", nightly).err
    assert pulse("schedules", "delete", nightly, "--yes").code == 0
    result = pulse("schedules", "delete", nightly, "--yes")
    assert result.code == 3
    assert "pulse schedules list" in result.err


@each_row(
    "options, sentence",
    [
        ([], "Give a timetable"),
        (["--every", "1h", "--cron", "@daily"], "--every, --cron"),
        (["--every", "1h", "--tz", "Europe/Paris"], "--tz goes with --cron"),
        (["--cron", "every day"], "cron"),
        (["--cron", "99 * * * *"], "has a bad minute field, '99': it takes 0 to 59, *, ranges such as 1-5"),
        (["--cron", "@daily", "--tz", "Mars/Olympus"], "Mars/Olympus"),
        (["--every", "soon"], "not a duration"),
        (["--every", "1ms"], "second"),
        (["--every", "1h", "--catch-up", "some"], "--catch-up"),
        (["--every", "1h", "--replace"], "name"),
    ],
)
def test_misuse_is_a_sentence_and_2(
    pulse: CommandLine, topic: str, options: list[str], sentence: str
) -> None:
    result = pulse("schedules", "create", topic, *options)
    assert (result.code, result.out) == (2, "")
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1


# ------------------------------------------------------------ code and operators


async def _declare(address: str, topic: str, **options: Any) -> pulse_sdk.ScheduleInfo:
    async with pulse_sdk.Pulse(address) as p:
        return await p.cron(topic, "0 3 * * *", tz="Europe/Paris", **options)


@pytest.fixture
def declared(pulse: CommandLine, topic: str) -> Callable[..., str]:
    """Declares a schedule in code, and returns its name."""

    def declare(**options: Any) -> str:
        return str(asyncio.run(_declare(pulse.variables["PULSE_ADDR"], topic, **options)).name)

    return declare


def test_update_of_the_expression_keeps_the_time_zone(
    pulse: CommandLine, declared: Callable[..., str]
) -> None:
    name = declared()
    changed = pulse("schedules", "update", name, "--cron", "30 4 * * *").out
    assert "cron          0 3 * * * → 30 4 * * *" in changed
    assert "tz   " not in changed
    assert "Next fires" in changed
    shown = pulse("schedules", "update", name, "--tz", "Asia/Tokyo", "-o", "json").json
    assert (shown["cron"], shown["tz"]) == ("30 4 * * *", "Asia/Tokyo")
    zone = pulse("schedules", "update", name, "--cron", "0 5 * * *", "--tz", "UTC").out
    assert "tz            Asia/Tokyo → UTC" in zone
    assert pulse("schedules", "update", name, "--cron", "0 5 * * *").out.startswith("Nothing was changed")


def test_update_asks_before_a_rare_schedule_fires_often(
    pulse: CommandLine, declared: Callable[..., str]
) -> None:
    name = declared()
    often = ["schedules", "update", name, "--cron", "* * * * *"]
    refused = pulse(*often)
    assert refused.code == 2
    assert f"{name} would fire 1,440 times a day instead of once. Continue?" in refused.err
    assert pulse("schedules", "get", name, "-o", "json").json["cron"] == "0 3 * * *"
    assert pulse(*often, "--yes", "-o", "json").json["cron"] == "* * * * *"
    # From often to often it does not ask.
    assert pulse("schedules", "update", name, "--cron", "*/2 * * * *").code == 0


def test_entry_stays_the_operators_until_it_is_reset(
    pulse: CommandLine, declared: Callable[..., str]
) -> None:
    name = declared(priority=1)
    pulse("schedules", "update", name, "--cron", "30 4 * * *", "--priority", "5")
    declared(priority=2)
    found = pulse("schedules", "get", name, "-o", "json").json
    assert (found["cron"], found["priority"], found["declared"]) == ("30 4 * * *", 5, True)
    assert [override["entry"] for override in found["overrides"]] == ["cron", "priority"]
    assert (found["declares"]["cron"], found["declares"]["priority"]) == ("0 3 * * *", 2)
    shown = pulse("schedules", "get", name).out
    assert "Set by operators" in shown
    assert "the code declares 0 3 * * *" in shown
    assert "code; operators: cron, priority" in pulse.screen("schedules", "list", "--all", columns=200).out

    assert "cron          30 4 * * * → 0 3 * * *" in pulse("schedules", "reset", name, "cron").out
    back = pulse("schedules", "reset", name, "-o", "json").json
    assert (back["priority"], back["overrides"], back["declares"]) == (2, [], None)


def test_replace_by_an_operator_is_no_declaration(
    pulse: CommandLine, declared: Callable[..., str], topic: str
) -> None:
    name = declared()
    replace = ["--cron", "30 4 * * *", "--name", name, "--replace", "-o", "json"]
    made = pulse("schedules", "create", topic, *replace).json
    assert (made["cron"], made["tz"], made["declares"]["tz"]) == ("30 4 * * *", "UTC", "Europe/Paris")
    declared()
    assert pulse("schedules", "get", name, "-o", "json").json["cron"] == "30 4 * * *"


def test_deletion_states_that_code_makes_the_schedule_again(
    pulse: CommandLine, declared: Callable[..., str], nightly: str
) -> None:
    name = declared()
    sentence = f"Code declares {name}: the next worker that starts makes it again"
    asked = pulse("schedules", "delete", name)
    assert (asked.code, sentence in asked.err) == (2, True)
    assert sentence in pulse("schedules", "delete", name, "--yes").out
    assert "Code declares" not in pulse("schedules", "delete", nightly, "--yes").out
    assert declared() == name
