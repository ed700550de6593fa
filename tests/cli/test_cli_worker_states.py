"""`pulse workers quiet`, `resume` and `stop`, of a worker of this test alone."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import PATIENCE_SECONDS, CommandLine, until
from tests.cli.conftest import TASKS

NAME = "a worker's name"


@pytest.fixture
def worker(pulse: CommandLine, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    named = TASKS.replace("pulse.Pulse()", f"pulse.Pulse(worker_id={NAME!r})")
    (tmp_path / "tasks.py").write_text(named)
    command = ["worker", "tasks:app", "--topics", "later"]
    with pulse.process(*command, cwd=tmp_path) as process:
        until(pulse, ["workers"], lambda workers: NAME in [worker["worker_id"] for worker in workers])
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def state(pulse: CommandLine) -> dict[str, str | None] | None:
    (worker,) = [one for one in pulse("workers", "-o", "json").json if one["worker_id"] == NAME]
    found: dict[str, str | None] | None = worker["state"]
    return found


def test_worker_is_quieted_resumed_and_stopped(pulse: CommandLine, worker: subprocess.Popen[str]) -> None:
    done = pulse("workers", "quiet", NAME, "--reason", "memory grows")
    assert f"pulse workers resume {shlex.quote(NAME)}" in done.out
    shown = state(pulse)
    assert shown is not None
    assert (shown["name"], shown["reason"]) == ("quiet", "memory grows")
    assert ", quiet" in pulse("workers").out
    assert "memory grows" in pulse("audit", "--method", "SetWorkerState", "-o", "json").out

    assert pulse("workers", "resume", NAME, "-o", "json").json == {
        "worker_id": NAME,
        "state": "running",
        "note": None,
    }
    assert state(pulse) is None

    asked = pulse("workers", "stop", NAME)
    assert asked.code == 2
    assert f"Stop {NAME}? It holds 0 jobs" in asked.err
    assert state(pulse) is None
    assert "drains and ends" in pulse("workers", "stop", NAME, "--yes").out
    assert worker.wait(PATIENCE_SECONDS) == 0


def test_worker_that_is_not_connected_is_refused(pulse: CommandLine) -> None:
    for action in (["quiet"], ["resume"], ["stop", "--yes"]):
        result = pulse("workers", action[0], "no-such-worker", *action[1:])
        assert result.code == 3
        assert "No worker 'no-such-worker' is connected. See: pulse workers\n" in result.err
