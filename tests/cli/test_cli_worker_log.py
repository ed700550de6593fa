"""The log of `pulse worker`: what handlers raise is bounded and printable in it. It can be JSON."""

import json
import logging
import sys
from pathlib import Path

import pytest

from pulse.error_text import JsonFormatter
from pulse_cli.running import JobFormatter
from tests.cli.command_line import CommandLine
from tests.cli.worker_processes import running


def record_of(error: Exception) -> logging.LogRecord:
    try:
        raise error
    except Exception:
        return logging.LogRecord("shop", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())


def line_of(error: Exception) -> str:
    return JobFormatter("%(message)s").format(record_of(error))


def test_error_with_a_long_message_is_shortened_in_the_log() -> None:
    line = line_of(ValueError(f"{'x' * 5_000_000} the end"))
    assert len(line) < 70_000
    assert line.startswith("failed\nTraceback")
    assert "characters are left out" in line
    assert line.endswith("the end")


def test_error_cannot_control_the_terminal() -> None:
    assert line_of(ValueError("\x1b[31mred")).endswith("ValueError: \\x1b[31mred")


def test_json_line_has_the_fields_of_the_record_and_a_bounded_exception() -> None:
    record = record_of(ValueError(f"{'x' * 5_000_000}\x1b[31m\u202e"))
    record.order, record.client = 7, object()
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert line.isprintable()
    fields = json.loads(line)
    assert (fields["event"], fields["level"], fields["logger"], fields["order"]) == (
        "failed",
        "error",
        "shop",
        7,
    )
    assert "characters are left out" in fields["exception"]
    assert "pulse_job_id" not in fields


@pytest.mark.parametrize("process", [False, True])
def test_every_line_of_the_supervisor_its_processes_and_their_handlers_is_json(
    pulse: CommandLine, tmp_path: Path, topic: str, process: bool
) -> None:
    (tmp_path / "tasks.py").write_text(
        f"""
import logging, pulse

app = pulse.Pulse()

@app.job("{topic}", process={process})
def handle() -> None:
    logging.getLogger("shop").info("in the handler", extra={{"order": 7}})
    raise ValueError("two\\nlines")
"""
    )
    command = ["worker", "tasks:app", "--processes", "1", "--log-format", "json"]
    with running(pulse, *command, cwd=tmp_path) as supervisor:
        supervisor.pids(1)
        job = pulse("submit", topic, "--max-attempts", "1", "-o", "plain").out.strip()
        supervisor.wait_for("it is a dead letter")
        supervisor.process.terminate()
        assert supervisor.ended() == 0
        lines = [json.loads(line) for line in supervisor.log.splitlines()]
    assert {line["process"] for line in lines} == {"supervisor", "worker-1"}
    (of_handler,) = [line for line in lines if line["logger"] == "shop"]
    assert (of_handler["order"], of_handler["pulse_job_id"], of_handler["pulse_attempt"]) == (7, job, 1)
    (of_failure,) = [line for line in lines if line["level"] == "error"]
    assert of_failure["exception"].endswith("ValueError: two\nlines")
    assert any(line["event"].startswith("Running tasks:app against") for line in lines)
