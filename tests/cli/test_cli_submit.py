"""`pulse submit`, piped and at a terminal."""

import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import pulse as sdk
from pulse_cli.jobs.loops import ChangeSignal
from tests.cli.command_line import CommandLine, ended
from tests.rows import each_row


def test_stored_job_has_what_was_asked_for(pulse: CommandLine, topic: str) -> None:
    options = ["--payload", '{"to": "a@b.c"}', "--priority", "7", "--max-attempts", "2", "--key", "k1"]
    result = pulse("submit", topic, *options, "--metadata", "tenant=acme", "-o", "json")
    assert result.code == 0
    assert set(result.json) == {"id", "topic", "duplicate", "replaced", "submitted_at"}
    job = pulse("jobs", "get", result.json["id"], "-o", "json").json
    assert job["payload"] == {"to": "a@b.c"}
    assert job["priority"] == 7
    assert job["max_attempts"] == 2
    assert job["idempotency_key"] == "k1"
    assert job["metadata"] == {"tenant": "acme"}


def test_output_in_a_pipe_is_the_id_alone(pulse: CommandLine, topic: str) -> None:
    """So that id=$(pulse submit …) is an id."""
    for form in ("table", "plain"):
        result = pulse("submit", topic, "-o", form)
        assert (result.code, len(result.out), result.err) == (0, 37, "")
        assert pulse("jobs", "get", result.out.strip(), "-o", "json").json["topic"] == topic


def test_terminal_shows_a_sentence_with_the_id(pulse: CommandLine, topic: str) -> None:
    shown = pulse.screen("submit", topic).out
    assert "Submitted 0" in shown
    assert f"on {topic}." in shown


@each_row("how", [["-"], ["--file", "-"]])
def test_dash_reads_standard_input(pulse: CommandLine, topic: str, how: list[str]) -> None:
    job_id = pulse("submit", topic, *how, "-o", "plain", stdin='["ü"]').out.strip()
    assert pulse("jobs", "get", job_id, "-o", "json").json["payload"] == ["ü"]


def test_file_is_read(pulse: CommandLine, topic: str, tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text('{"order": 1}')
    job_id = pulse("submit", topic, "--file", str(tmp_path / "order.json"), "-o", "plain").out.strip()
    assert pulse("jobs", "get", job_id, "-o", "json").json["payload"] == {"order": 1}


def test_raw_payload_travels_as_it_is(pulse: CommandLine, topic: str) -> None:
    job_id = pulse("submit", topic, "-", "--raw", "-o", "plain", stdin=b"\x00\xff{").out.strip()
    job = pulse("jobs", "get", job_id, "-o", "json").json
    assert (job["payload"], job["payload_base64"]) == (None, "AP97")


def test_same_key_is_reported_as_a_duplicate(pulse: CommandLine, topic: str) -> None:
    first = pulse("submit", topic, "--key", "k", "-o", "json").json
    second = pulse("submit", topic, "--key", "k", "-o", "json").json
    assert second == first | {"duplicate": True}
    third = pulse("submit", topic, "--key", "k")
    assert third.out == first["id"] + "\n"
    assert "already" in third.err


def test_same_key_with_another_payload_is_refused(pulse: CommandLine, topic: str) -> None:
    pulse("submit", topic, "--key", "k")
    assert pulse("submit", topic, "--key", "k", "--payload", "1").code == 1


def test_delayed_job_waits(pulse: CommandLine, topic: str) -> None:
    job_id = pulse("submit", topic, "--delay", "1h30m", "-o", "plain").out.strip()
    assert "It is delayed until " in pulse("jobs", "get", job_id).out
    assert "runs in 1h" in pulse("jobs", "list", "--topic", topic).out


def test_time_without_a_zone_is_the_machines(pulse: CommandLine, topic: str) -> None:
    job_id = pulse("submit", topic, "--at", "2040-01-31T09:00", "-o", "plain").out.strip()
    assert pulse("jobs", "get", job_id, "-o", "json").json["next_run_at"] == "2040-01-31T09:00:00Z"


def test_count_stores_that_many(pulse: CommandLine, topic: str) -> None:
    result = pulse("submit", topic, "--count", "3", "-o", "json")
    assert len({job["id"] for job in result.json}) == 3
    assert len(pulse("submit", topic, "--count", "2").out.splitlines()) == 2
    assert len(pulse("jobs", "list", "--topic", topic, "-o", "json").json) == 5


# ---------------------------------------------------------------- waiting


def test_wait_ends_with_0_for_a_job_that_is_completed(working: CommandLine) -> None:
    result = working("submit", "ok", "--wait", "-o", "json")
    assert result.code == 0
    assert result.json["status"] == "COMPLETED"


def test_wait_prints_the_result(working: CommandLine) -> None:
    submitted = ("submit", "answer", "--payload", '{"number": 6}', "--wait")
    result = working(*submitted)
    assert result.code == 0
    _, status, *lines = result.out.splitlines()
    assert status.startswith("COMPLETED after")
    assert lines == ["{", '  "answer": 42', "}"]
    shape = working(*submitted, "-o", "json").json
    assert (shape["result"], shape["result_base64"]) == ({"answer": 42}, None)
    described = working("jobs", "get", shape["id"]).out
    assert 'Result\n  {\n    "answer": 42\n  }' in described


def test_wait_ends_with_1_and_the_error_for_a_job_that_failed(working: CommandLine) -> None:
    result = working("submit", "fatal", "--payload", '{"text": "no such order"}', "--wait")
    assert result.code == 1
    assert "DEAD_LETTERED" in result.out
    assert "no such order" in result.out
    assert result.err == ""


def test_wait_for_several_counts_each_result(working: CommandLine) -> None:
    assert "3 COMPLETED" in working("submit", "ok", "--count", "3", "--wait").out


def test_wait_ends_after_its_timeout(pulse: CommandLine, topic: str) -> None:
    result = pulse("submit", topic, "--wait-timeout", "100ms")
    assert result.code == 1
    assert "pulse jobs get 0" in result.err
    assert f"No worker that takes '{topic}' is connected" in result.err


def test_terminal_shows_what_is_waited_for_and_ctrl_c_leaves_the_job(pulse: CommandLine, topic: str) -> None:
    with pulse.terminal("submit", topic, "--wait") as child:
        child.expect("PENDING")
        child.sendintr()
        assert ended(child) == 130
        assert "The job continues" in child.before
    assert len(pulse("jobs", "list", "--topic", topic, "-o", "json").json) == 1


def test_terminal_shows_the_outcome_in_color(working: CommandLine) -> None:
    result = working.screen("submit", "ok", "--wait")
    assert result.code == 0
    assert "\x1b[32mCOMPLETED" in result.out


def test_interrupted_wait_in_a_pipe_leaves_no_traceback(pulse: CommandLine, topic: str) -> None:
    with pulse.process("submit", topic, "--wait") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Submitted")
        while process.poll() is None:  # Python ignores an interrupt that it meets in a finalizer
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.parametrize("is_by_topic", [False, True])
def test_change_of_a_job_is_noticed_when_it_happens(
    address: str, topic: str, is_by_topic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_by_topic:  # as for more jobs than a server watches by name
        monkeypatch.setattr("pulse_cli.tuning.LARGEST_WATCH", 0)
    with sdk.SyncPulse(address) as client:
        job = client.enqueue(topic)
        notice = ChangeSignal(client, [job.id], [topic])
        assert notice.wait(30)  # it watches from here on
        client.cancel(job.id)
        assert notice.wait(30)


# ---------------------------------------------------------------- misuse


@each_row(
    "options, sentence",
    [
        (["--payload", "{to: 1}"], "Not valid JSON in --payload: Expecting property name"),
        (["--payload", ""], "Not valid JSON"),
        (["--payload", '{"euros": NaN}'], "Not valid JSON in --payload: it has NaN, which JSON cannot hold"),
        (["--payload", "[-Infinity]"], "it has -Infinity"),
        (["--payload", "\udcff"], "Not valid JSON in --payload: it is not UTF-8"),
        (["--file", "/does/not/exist"], "/does/not/exist cannot be read"),
        (["--payload", "1", "--file", "x"], "Give one of --payload"),
        (["something"], "Unexpected 'something'"),
        (["--delay", "5"], "'5' is not a duration"),
        (["--delay", "1m", "--at", "2030-01-01T00:00"], "--delay or --at, not both"),
        (["--at", "noon"], "'noon' is not a time"),
        (["--count", "0"], "--count"),
        (["--count", "2", "--key", "k"], "--key and --count"),
        (["--metadata", "tenant"], "name=value"),
        (["--priority", "high"], "--priority"),
        (["--max-attempts", "2000"], "from 1 to 1,000"),
        (["--nope"], "--nope"),
    ],
)
def test_misuse_is_a_sentence_and_2(
    pulse: CommandLine, topic: str, options: list[str], sentence: str
) -> None:
    result = pulse("submit", topic, *options)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("pulse: ")
    assert sentence in result.err
    assert len(result.err.splitlines()) == 1


def test_garbage_on_standard_input_is_named(pulse: CommandLine, topic: str) -> None:
    result = pulse("submit", topic, "-", stdin=b"\xff\xfe")
    assert result.code == 2
    assert "standard input" in result.err


def test_topic_that_cannot_be_is_refused(pulse: CommandLine) -> None:
    result = pulse("submit", "no spaces please")
    assert result.code == 2
    assert "use letters, digits" in result.err


def test_refused_submit_stores_nothing(pulse: CommandLine, topic: str, stored: Callable[..., str]) -> None:
    stored(topic)
    pulse("submit", topic, "--payload", "nonsense")
    assert len(pulse("jobs", "list", "--topic", topic, "-o", "json").json) == 1
