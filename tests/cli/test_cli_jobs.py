"""`pulse jobs`, piped and at a terminal."""

import json
import re
from collections.abc import Callable

import pytest

from tests.cli.command_line import CommandLine, ended, plain_text
from tests.rows import each_row

UNKNOWN = "0199c0de-0000-7000-8000-000000000001"


# ---------------------------------------------------------------- list


def test_list_is_newest_first(pulse: CommandLine, topic: str, stored: Callable[..., str]) -> None:
    ids = [stored(topic) for _ in range(3)]
    listed = pulse("jobs", "list", "--topic", topic, "-o", "json").json
    assert [job["id"] for job in listed] == ids[::-1]


def test_find_looks_for_parts_and_for_fields_of_the_payload(pulse: CommandLine, topic: str) -> None:
    ids = [
        pulse("submit", topic, "--payload", f'{{"order_id": {number}}}', "-o", "plain").out.strip()
        for number in (41, 42)
    ]
    assert pulse("jobs", "find", ids[0][9:], topic, "-o", "plain").out.startswith(ids[0])
    (job,) = pulse("jobs", "find", "args.order_id=42", "--topic", topic, "-o", "json").json
    assert job["id"] == ids[1]
    nothing = pulse("jobs", "find", "nowhere-to-be-found")
    assert "No job matches." in nothing.out + nothing.err


def test_list_shows_the_priority(pulse: CommandLine, topic: str) -> None:
    pulse("submit", topic, "--priority", "17")

    header, row = pulse("jobs", "list", "--topic", topic).out.splitlines()

    place = header.split().index("PRIO")
    assert header.split()[place - 1 : place + 2] == ["TRIES", "PRIO", "SUBMITTED"]
    assert row.split()[place] == "17"


def test_list_filters_by_status_however_it_is_written(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    kept, canceled = stored(topic), stored(topic)
    pulse("jobs", "cancel", canceled)
    for status in ("CANCELED", "canceled", "cancelled"):
        (job,) = pulse("jobs", "list", "--topic", topic, "--status", status, "-o", "json").json
        assert job["id"] == canceled
    (job,) = pulse("jobs", "list", "--topic", topic, "--status", "PENDING", "-o", "json").json
    assert job["id"] == kept


def test_list_pages_by_cursor_without_gap_or_overlap(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    ids = [stored(topic) for _ in range(5)]
    first = pulse("jobs", "list", "--topic", topic, "--limit", "2", "-o", "plain")
    cursor = re.search(r"--cursor (\S+)", first.err)
    assert cursor is not None
    rest = pulse("jobs", "list", "--topic", topic, "--cursor", cursor[1], "-o", "plain")
    assert [row[0] for row in first.rows + rest.rows] == ids[::-1]
    assert "--cursor" not in rest.err


def test_list_shows_everything_when_asked(pulse: CommandLine, topic: str) -> None:
    pulse("submit", topic, "--count", "60")
    assert len(pulse("jobs", "list", "--topic", topic, "-o", "plain").rows) == 50
    assert len(pulse("jobs", "list", "--topic", topic, "--all", "-o", "plain").rows) == 60


def test_plain_list_has_the_documented_fields(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    job_id = stored(topic)
    (row,) = pulse("jobs", "list", "--topic", topic, "-o", "plain").rows
    assert row[:6] == [job_id, topic, "PENDING", "0", "25", "0"]
    assert len(row) == 12


def test_piped_table_has_no_color_and_is_not_cut(working: CommandLine) -> None:
    text = "a very long explanation of what went wrong, " * 4
    working("submit", "fatal", "--payload", json.dumps({"text": text}), "--wait")
    result = working("jobs", "list", "--topic", "fatal", "--limit", "1")
    assert "\x1b" not in result.out
    assert text.strip() in result.out


@pytest.mark.parametrize("columns", [200, 80, 60])
def test_table_fits_the_terminal_and_keeps_whole_ids(working: CommandLine, columns: int) -> None:
    text = "a very long explanation of what went wrong, " * 8
    job = working("submit", "fatal", "--payload", json.dumps({"text": text}), "--wait", "-o", "json").json
    result = working.screen("jobs", "list", "--status", "DEAD_LETTERED", columns=columns)
    lines = plain_text(result.out).splitlines()
    assert any(line.startswith(job["id"]) for line in lines)
    assert max(len(line) for line in lines if not line.startswith("There are more")) <= columns
    assert ("…" in result.out) == (columns > 60)


def test_table_on_a_tiny_terminal_still_shows_id_and_status(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    job_id = stored(topic)
    result = pulse.screen("jobs", "list", "--topic", topic, columns=30)
    assert job_id in plain_text(result.out)
    assert "PENDING" in result.out


def test_status_is_colored_at_a_terminal_unless_no_color_is_set(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    stored(topic)
    assert "\x1b[36mPENDING" in pulse.screen("jobs", "list", "--topic", topic).out
    assert "\x1b[" not in pulse.screen("jobs", "list", "--topic", topic, NO_COLOR="1").out


def test_empty_list_says_what_to_do_and_leaves_the_output_empty(pulse: CommandLine, topic: str) -> None:
    result = pulse("jobs", "list", "--topic", topic, "--status", "RUNNING")
    assert (result.code, result.out) == (0, "")
    assert "There are no RUNNING jobs on" in result.err
    assert pulse("jobs", "list", "--topic", topic, "-o", "json").json == []
    assert pulse("jobs", "list", "--topic", topic, "-o", "plain").out == ""


def test_unknown_status_names_the_known_ones(pulse: CommandLine) -> None:
    result = pulse("jobs", "list", "--status", "broken")
    assert result.code == 2
    assert "DEAD_LETTERED" in result.err


def test_watch_shows_what_changes_until_ctrl_c(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    job_id = stored(topic)
    with pulse.terminal("jobs", "list", "--topic", topic, "--watch", "--interval", "200ms") as child:
        child.expect("PENDING")
        pulse("jobs", "cancel", job_id)
        child.expect("CANCELED")
        child.sendintr()
        assert ended(child) == 130
        assert "Traceback" not in child.before


def test_piped_watch_repeats_the_list(pulse: CommandLine, topic: str, stored: Callable[..., str]) -> None:
    job_id = stored(topic)
    arguments = ["jobs", "list", "--topic", topic, "--watch", "--interval", "200ms", "-o", "json"]
    with pulse.process(*arguments) as process:
        assert process.stdout is not None
        for _ in range(2):
            assert [job["id"] for job in json.loads(process.stdout.readline())] == [job_id]
        process.terminate()
        process.communicate()


def test_list_filters_by_time_error_and_schedule(working: CommandLine, topic: str) -> None:
    text = f"no route to {topic}"
    job = working("submit", "fatal", "--payload", json.dumps({"text": text}), "--wait", "-o", "json").json
    listed = ["jobs", "list", "--topic", "fatal", "-o", "plain"]
    assert [row[0] for row in working(*listed, "--error", text.upper()).rows] == [job["id"]]
    assert working(*listed, "--error", text, "--since", "1h").rows
    assert working(*listed, "--error", text, "--since", job["submitted_at"]).rows
    assert not working(*listed, "--error", text, "--before", "1h").rows
    assert not working(*listed, "--error", text, "--since", "2100-01-01T00:00Z").rows


def test_list_filters_by_schedule_of_either_name(pulse: CommandLine, topic: str) -> None:
    made = pulse("schedules", "create", topic, "--every", "1h", "--name", topic, "-o", "json").json
    pulse("submit", topic)
    fired = pulse("schedules", "fire", topic, "-o", "plain").out.strip()
    for schedule in (topic, made["id"]):
        rows = pulse("jobs", "list", "--schedule", schedule, "-o", "plain").rows
        assert [row[0] for row in rows] == [fired]
    pulse("schedules", "delete", topic, "--yes")
    assert pulse("jobs", "list", "--schedule", made["id"], "-o", "plain").rows
    assert pulse("jobs", "list", "--schedule", topic).code == 3


def test_empty_list_names_the_filter(pulse: CommandLine, topic: str) -> None:
    result = pulse("jobs", "list", "--topic", topic, "--since", "2h", "--error", "timeout")
    assert f"There are no jobs on {topic}, submitted since 20" in result.err
    assert "with 'timeout' in the error" in result.err


def test_invalid_time_is_misuse(pulse: CommandLine) -> None:
    result = pulse("jobs", "list", "--since", "yesterday")
    assert result.code == 2
    assert "such as 2h" in result.err


# ---------------------------------------------------------------- get


def test_get_shows_the_whole_job(working: CommandLine) -> None:
    payload = json.dumps({"text": "first line\nsecond \x1b[31mline"})
    job = working("submit", "fatal", "--payload", payload, "--wait", "-o", "json").json
    result = working("jobs", "get", job["id"])
    assert result.code == 0
    for words in (
        "DEAD_LETTERED",
        "Timeline",
        "submitted",
        "attempt 1 discarded after",
        "Payload",
        "Last error",
    ):
        assert words in result.out
    assert "second \\x1b[31mline" in result.out  # an error must not reach into the terminal


def test_get_shows_every_failed_attempt(working: CommandLine) -> None:
    job = working("submit", "flaky", "--max-attempts", "3", "--wait", "-o", "json").json
    assert [past["outcome"] for past in job["history"]] == ["failed"] * 3
    shown = working("jobs", "get", job["id"]).out
    assert [f"attempt {number} failed" in shown for number in (1, 2, 3)] == [True] * 3


def test_get_shows_the_worker_of_a_running_job(working: CommandLine) -> None:
    job_id = working("submit", "forever", "-o", "plain").out.strip()
    with working.terminal("jobs", "list", "--topic", "forever", "--watch", "--interval", "200ms") as child:
        child.expect("RUNNING")
    shown = working("jobs", "get", job_id).out
    assert "attempt 1 started on" in shown
    assert "Lease until" in shown
    assert working("jobs", "cancel", job_id).code == 0


def test_get_at_a_terminal(pulse: CommandLine, topic: str, stored: Callable[..., str]) -> None:
    job_id = stored(topic, "--payload", '{"to": "ü@b.c"}')
    result = pulse.screen("jobs", "get", job_id)
    assert result.code == 0
    assert '"to": "ü@b.c"' in result.out


def test_json_of_a_job_has_the_documented_keys(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    from tools.cli_shapes import SHAPES

    documented = next(shape for title, shape in SHAPES.items() if title.startswith("A job, in"))
    assert list(pulse("jobs", "get", stored(topic), "-o", "json").json) == list(documented)


@each_row(
    "typed, code, sentence",
    [
        ("0000c0de", 3, "no job whose id starts with '0000c0de'"),
        ("019", 2, "too short for a prefix"),
        ("nonsense", 2, "is not the id of a job"),
        (UNKNOWN + "0", 2, "is not the id of a job"),
        (UNKNOWN, 3, "pulse jobs list"),
    ],
)
def test_job_that_is_not_there(pulse: CommandLine, typed: str, code: int, sentence: str) -> None:
    result = pulse("jobs", "get", typed)
    assert (result.code, result.out) == (code, "")
    assert sentence in result.err


def test_closed_pipe_is_not_an_error(pulse: CommandLine, topic: str) -> None:
    pulse("submit", topic, "--count", "900")
    with pulse.process("jobs", "list", "--topic", topic, "--all", "-o", "plain") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""


@each_row(
    "option, value, sentence",
    [
        ("--cursor", "abc", "The cursor is not one that this server gave out."),
        ("--since", "1900-01-01", "--since must lie between the years 1970 and 2200."),
        ("--before", "2400-01-01", "--before must lie between the years 1970 and 2200."),
        ("--error", "a" * 300, "--error has 300 characters"),
        ("--error-group", "abc", "--error-group 'abc' is not the id"),
    ],
)
def test_refused_filter_names_the_option(pulse: CommandLine, option: str, value: str, sentence: str) -> None:
    result = pulse("jobs", "list", option, value)
    assert result.code == 2
    assert result.err.startswith(f"pulse: {sentence}")
