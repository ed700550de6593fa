"""`pulse jobs tail`: jobs as they change, piped and at a terminal."""

import json
import signal
from collections.abc import Callable

from tests.cli.command_line import CommandLine, ended, plain_text
from tools.cli_fields import PLAIN
from tools.cli_shapes import SHAPES


def test_tail_sees_the_whole_life_of_a_job(working: CommandLine) -> None:
    with working.process("jobs", "tail", "--topic", "flaky", "-o", "json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline().startswith("Following all jobs on flaky")
        job_id = working("submit", "flaky", "--max-attempts", "2", "-o", "plain").out.strip()
        seen = []
        while not seen or seen[-1]["status"] != "DEAD_LETTERED":
            line = json.loads(process.stdout.readline())
            seen += [line] if line["job_id"] == job_id else []
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == ""
    assert [(line["status"], line["attempt"]) for line in seen] == [
        ("PENDING", 0),
        ("RUNNING", 1),
        ("RETRYING", 1),
        ("RUNNING", 2),
        ("DEAD_LETTERED", 2),
    ]
    assert seen[-1]["error"] == "not now"
    assert seen[-1]["worker_id"]
    assert [line["at"] for line in seen] == sorted(line["at"] for line in seen)
    documented = next(shape for title, shape in SHAPES.items() if title.startswith("A transition, in"))
    assert list(seen[0]) == list(documented)


def test_tail_at_a_terminal_gives_errors_a_line_of_their_own(working: CommandLine, topic: str) -> None:
    with working.terminal("jobs", "tail", "--topic", "fatal", "--status", "dead-lettered") as child:
        child.expect("Following all jobs on fatal, when they become DEAD_LETTERED")
        text = f"no such order: {topic}"
        job_id = working(
            "submit", "fatal", "--payload", json.dumps({"text": text}), "-o", "plain"
        ).out.strip()
        child.expect("\x1b\\[31mDEAD_LETTERED")
        child.expect(text)
        assert job_id in child.before
        assert "PENDING" not in child.before
        child.sendintr()
        assert ended(child) == 130
        assert "Traceback" not in child.before


def test_tail_of_one_job_shows_its_current_status(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    followed, other = stored(topic), stored(topic)
    with pulse.terminal("jobs", "tail", followed[:-1], columns=140) as child:
        child.expect(f"{followed} on {topic} is PENDING: waits for a worker")
        pulse("jobs", "cancel", other)
        pulse("jobs", "cancel", followed, "--reason", "sent twice")
        child.expect("sent twice")
        assert other not in child.before
        assert f"CANCELED      {followed} {topic}: " in plain_text(child.before)


def test_plain_tail_has_the_documented_fields_and_ends_with_its_reader(
    pulse: CommandLine, topic: str, stored: Callable[..., str]
) -> None:
    with pulse.process("jobs", "tail", "--topic", topic, "-o", "plain") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.readline()
        job_id = stored(topic)
        row = process.stdout.readline().rstrip("\n").split("\t")
        assert row[1:5] == ["PENDING", topic, job_id, "0"]
        assert len(row) == len(PLAIN["`jobs tail`"])
        process.stdout.close()
        stored(topic)
        assert process.stderr.read() == ""
        process.wait(30)


def test_tail_of_a_job_that_is_not_there_is_3(pulse: CommandLine) -> None:
    assert pulse("jobs", "tail", "0000c0de").code == 3


def test_tail_of_a_topic_that_cannot_be_is_misuse(pulse: CommandLine) -> None:
    result = pulse("jobs", "tail", "--topic", "no spaces please")
    assert result.code == 2
    assert "use letters, digits" in result.err


def test_tail_without_a_server_is_5(alone: CommandLine) -> None:
    result = alone("jobs", "tail", "--addr", "127.0.0.1:1", "--timeout", "200ms")
    assert (result.code, result.out) == (5, "")
    assert len(result.err.splitlines()) == 1
