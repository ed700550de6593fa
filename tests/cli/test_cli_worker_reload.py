"""`pulse worker --reload` ends with the signal that it alone receives, and leaves no worker behind."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, until
from tests.cli.worker_processes import running

APPLICATION = """
import asyncio
import pulse

app = pulse.Pulse()

@app.job("{topic}")
async def greet() -> None: ...
"""

SLOW_TO_IMPORT = """
import sys, time
print("importing", file=sys.stderr, flush=True)
time.sleep(600)
"""


@pytest.fixture
def application(tmp_path: Path, topic: str) -> Path:
    (tmp_path / "tasks.py").write_text(APPLICATION.format(topic=topic))
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_reloader_alone_ends_it_and_its_worker(
    pulse: CommandLine, application: Path, number: signal.Signals
) -> None:
    with running(pulse, "worker", "tasks:app", "--reload", cwd=application) as reloader:
        reloader.wait_for("Connected to pulsed")
        reloader.process.send_signal(number)
        assert reloader.ended() == 0
        assert "has stopped" in reloader.log


def test_signal_to_the_group_drains_the_worker_once(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    source = APPLICATION.format(topic=topic).replace(
        "...", '\n    print("begun", flush=True)\n    await asyncio.sleep(3)\n    print("done", flush=True)'
    )
    (application / "tasks.py").write_text(source)
    with running(pulse, "worker", "tasks:app", "--reload", cwd=application) as reloader:
        reloader.wait_for("Connected to pulsed")
        job = pulse("submit", topic, "-o", "plain").out.strip()
        assert reloader.process.stdout is not None
        assert reloader.process.stdout.readline() == "begun\n"
        os.killpg(reloader.process.pid, signal.SIGINT)
        # The handler has finished: the worker's own signal and the request of its parent are one.
        assert reloader.process.stdout.readline() == "done\n"
        assert reloader.ended() == 0
    assert pulse("jobs", "get", job, "-o", "json").json["status"] == "COMPLETED"


def test_changed_file_gives_handlers_5_s_and_the_log_states_that(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    source = APPLICATION.format(topic=topic)
    begun = source.replace("...", '\n    print("begun", flush=True)\n    await asyncio.sleep(600)')
    (application / "tasks.py").write_text(begun)
    with running(pulse, "worker", "tasks:app", "--reload", cwd=application) as reloader:
        reloader.wait_for("Connected to pulsed")
        job = pulse("submit", topic, "-o", "plain").out.strip()
        assert reloader.process.stdout is not None
        assert reloader.process.stdout.readline() == "begun\n"
        (application / "tasks.py").write_text(source)
        reloader.wait_for(r"Stopping: 1 handler has 5 s to finish\.")
        # The job is released, and the new code runs it.
        reloader.wait_for("Connected to pulsed", 2)
        until(pulse, ["jobs", "get", job], lambda stored: stored["status"] == "COMPLETED")
        reloader.process.terminate()
        assert reloader.ended() == 0


def test_reloader_that_is_killed_leaves_no_worker(pulse: CommandLine, application: Path) -> None:
    with running(pulse, "worker", "tasks:app", "--reload", cwd=application) as reloader:
        reloader.wait_for("Connected to pulsed")
        reloader.process.kill()
        reloader.ended()


def test_reloader_that_is_killed_while_the_application_is_imported_leaves_no_worker(
    pulse: CommandLine, application: Path
) -> None:
    (application / "tasks.py").write_text(SLOW_TO_IMPORT)
    with running(pulse, "worker", "tasks:app", "--reload", cwd=application) as reloader:
        reloader.wait_for("importing")
        reloader.process.kill()
        reloader.ended()


def test_processes_cannot_be_reloaded(pulse: CommandLine, application: Path) -> None:
    with running(pulse, "worker", "tasks:app", "--reload", "--processes", "2", cwd=application) as reloader:
        assert reloader.ended() == 2
        assert "--reload is for development" in reloader.log
