"""`pulse worker --processes`: what dies is started again, and nothing is left when it ends."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_line import WITH_TESTS, CommandLine, until
from tests.cli.worker_processes import running

APPLICATION = """
import asyncio
import os
import sys
import pulse

app = pulse.Pulse(worker_id="{topic}-of-the-shop")

@app.job("{topic}")
async def note(seconds: float = 0.0) -> None:
    print("begun in", os.environ["PULSE_PROCESS"], file=sys.stderr, flush=True)
    await asyncio.sleep(seconds)
"""


@pytest.fixture
def application(tmp_path: Path, topic: str) -> Path:
    (tmp_path / "tasks.py").write_text(APPLICATION.format(topic=topic))
    return tmp_path


def test_sigterm_to_the_supervisor_alone_drains_every_process(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    with running(pulse, "worker", "tasks:app", "--processes", "3", cwd=application) as supervisor:
        supervisor.pids(3)
        job = pulse("submit", topic, "--payload", '{"seconds": 2}', "-o", "plain").out.strip()
        supervisor.wait_for("begun in")
        supervisor.process.terminate()
        assert supervisor.ended() == 0
        assert supervisor.log.count("has stopped.") == 3
    assert pulse("jobs", "get", job, "-o", "json").json["status"] == "COMPLETED"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_group_drains_once(
    pulse: CommandLine, application: Path, topic: str, number: signal.Signals
) -> None:
    """The signal itself and the request of the supervisor count as one, not as a first and a second."""
    with running(pulse, "worker", "tasks:app", "--processes", "2", cwd=application) as supervisor:
        supervisor.pids(2)
        job = pulse("submit", topic, "--payload", '{"seconds": 2}', "-o", "plain").out.strip()
        supervisor.wait_for("begun in")
        os.killpg(supervisor.process.pid, number)
        assert supervisor.ended() == 0
    assert pulse("jobs", "get", job, "-o", "json").json["status"] == "COMPLETED"


def test_second_signal_does_not_wait_for_handlers(pulse: CommandLine, application: Path, topic: str) -> None:
    with running(pulse, "worker", "tasks:app", "--processes", "2", cwd=application) as supervisor:
        supervisor.pids(2)
        job = pulse("submit", topic, "--payload", '{"seconds": 600}', "-o", "plain").out.strip()
        supervisor.wait_for("begun in")
        supervisor.process.send_signal(signal.SIGINT)
        supervisor.wait_for("handler has 30 s to finish")
        supervisor.process.send_signal(signal.SIGINT)
        assert supervisor.ended() == 0
    assert pulse("jobs", "get", job, "-o", "json").json["attempts"] == 0  # released


def test_process_that_is_killed_again_and_again_is_started_again_and_again(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    with running(pulse, "worker", "tasks:app", "--processes", "2", cwd=application) as supervisor:
        supervisor.pids(2)
        for count in range(1, 5):
            newest = supervisor.wait_for(r"Process 1 \(pid (\d+)\) has started", count)[-1]
            os.kill(int(newest), signal.SIGKILL)
            supervisor.wait_for(rf"pid {newest}\) was killed by SIGKILL.*starts again in .* at most 30 s", 1)
            supervisor.pids(2 + count)
        assert pulse("submit", topic, "--wait").code == 0
        supervisor.process.terminate()
        assert supervisor.ended() == 0


def test_supervisor_that_is_killed_leaves_no_process(pulse: CommandLine, application: Path) -> None:
    with running(pulse, "worker", "tasks:app", "--processes", "3", cwd=application) as supervisor:
        supervisor.pids(3)
        supervisor.process.kill()
        supervisor.ended()
        supervisor.wait_for("Worker .* has stopped", 3)  # drained, not torn down


def test_processes_are_workers_with_names_and_log_lines_of_their_own(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    with running(pulse, "worker", "tasks:app", "--processes", "3", cwd=application) as supervisor:
        supervisor.pids(3)
        workers = until(
            pulse, ["workers"], lambda found: sum(topic in worker["worker_id"] for worker in found) == 3
        )
        names = {worker["worker_id"] for worker in workers if topic in worker["worker_id"]}
        assert len(names) == 3
        assert all(name.startswith(f"{topic}-of-the-shop-") for name in names)
        assert {*supervisor.wait_for(r" (worker-\d) INFO pulse.worker: Connected", 3)} == {
            "worker-1",
            "worker-2",
            "worker-3",
        }
        assert " supervisor INFO pulse.supervisor: Process 1" in supervisor.log
        supervisor.process.terminate()
        assert supervisor.ended() == 0


def test_process_that_an_operator_stops_is_started_again_and_takes_jobs(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    def own(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [worker for worker in found if topic in worker["worker_id"]]

    with running(pulse, "worker", "tasks:app", "--processes", "2", cwd=application) as supervisor:
        supervisor.pids(2)
        workers = until(pulse, ["workers"], lambda found: len(own(found)) == 2)
        stopped = own(workers)[0]["worker_id"]
        assert pulse("workers", "stop", stopped, "--yes", "--reason", "memory grows").code == 0
        supervisor.wait_for(r"Process \d \(pid \d+\) exited with code 0")
        supervisor.pids(3)
        until(pulse, ["workers"], lambda found: [one["state"] for one in own(found)] == [None, None])
        assert all(pulse("submit", topic, "--wait").code == 0 for _ in range(4))
        supervisor.process.terminate()
        assert supervisor.ended() == 0


def test_log_lines_of_a_child_process_have_the_name_of_its_worker(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    (application / "tasks.py").write_text(
        f"""
import logging, pulse

app = pulse.Pulse()

@app.job("{topic}", process=True)
def handle() -> None:
    logging.getLogger("shop").info("in a child")
"""
    )
    with running(pulse, "worker", "tasks:app", "--processes", "1", cwd=application) as supervisor:
        supervisor.pids(1)
        assert pulse("submit", topic, "--wait").code == 0
        supervisor.wait_for(r" worker-1 INFO shop: in a child \[", 1)
        supervisor.process.terminate()
        assert supervisor.ended() == 0


def test_application_that_cannot_be_imported_is_reported_once_and_ends_with_2(
    pulse: CommandLine, application: Path
) -> None:
    (application / "tasks.py").write_text("1 / 0\n")
    with running(pulse, "worker", "tasks:app", "--processes", "4", cwd=application) as supervisor:
        assert supervisor.ended() == 2
        assert supervisor.log.count("ZeroDivisionError") == 1


def test_sighup_replaces_every_process_and_keeps_the_old_ones_if_the_new_code_is_broken(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    source = (application / "tasks.py").read_text()
    with running(pulse, "worker", "tasks:app", "--processes", "2", cwd=application) as supervisor:
        before = supervisor.pids(2)
        (application / "tasks.py").write_text("1 / 0\n")
        supervisor.process.send_signal(signal.SIGHUP)
        supervisor.wait_for("exited with code 2. The old process works on", 2)
        assert pulse("submit", topic, "--wait").code == 0
        (application / "tasks.py").write_text(source)
        supervisor.wait_for(r"Process \d \(pid \d+\) exited with code 0", 2)
        for pid in before:
            supervisor.wait_for(rf"\(pid {pid}\) exited with code 0")
        assert pulse("submit", topic, "--wait").code == 0
        supervisor.process.terminate()
        assert supervisor.ended() == 0


def test_code_that_the_server_refuses_does_not_replace_the_old_one(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    """The new one is connected by then: a schedule cannot become one of another kind."""
    source = (application / "tasks.py").read_text()
    good = source.replace(f'job("{topic}")', f'job("{topic}", max_attempts=2)')
    good += f'app.cron("{topic}", "@daily", name="{topic}")\n'
    bad = source.replace(f'job("{topic}")', f'job("{topic}", max_attempts=9)')
    bad += f'from datetime import timedelta\napp.every("{topic}", timedelta(hours=1), name="{topic}")\n'
    (application / "tasks.py").write_text(good)
    with running(pulse, "worker", "tasks:app", "--processes", "2", cwd=application) as supervisor:
        supervisor.pids(2)
        supervisor.wait_for("Declared the schedules", 2)
        (application / "tasks.py").write_text(bad)
        supervisor.process.send_signal(signal.SIGHUP)
        supervisor.wait_for("exited with code 2. The old process works on", 2)
        assert pulse("submit", topic, "--wait").code == 0
        assert pulse("topics", "show", topic, "-o", "json").json["in_force"]["max_attempts"] == 2
        supervisor.process.terminate()
        assert supervisor.ended() == 0
    with running(pulse, "worker", "tasks:app", "--processes", "2", cwd=application) as supervisor:
        assert supervisor.ended() == 2
        assert supervisor.log.count("could not be declared") == 1


def test_program_of_a_handler_that_does_not_stop_ends_with_the_worker(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    source = (application / "tasks.py").read_text().replace("async def", "def")
    source = source.replace(
        "await asyncio.sleep(seconds)", 'import subprocess; subprocess.run(["sleep", "600"])'
    )
    (application / "tasks.py").write_text(source)
    options = ("--processes", "1", "--drain-timeout", "100ms")
    with running(pulse, "worker", "tasks:app", *options, cwd=application) as supervisor:
        supervisor.pids(1)
        assert pulse("submit", topic, "-o", "plain").code == 0
        supervisor.wait_for("begun in")
        supervisor.process.terminate()
        # It has standard output, too: this waits for its end.
        assert supervisor.ended() == 0
        assert "1 handler did not stop; its job runs again once the lease ends." in supervisor.log


def test_process_that_does_not_stop_is_killed(pulse: CommandLine, application: Path, topic: str) -> None:
    source = (
        (application / "tasks.py")
        .read_text()
        .replace("await asyncio.sleep(seconds)", "import time; time.sleep(600)")
    )
    (application / "tasks.py").write_text(source)
    with running(
        pulse,
        *("worker", "tasks:app", "--processes", "1", "--drain-timeout", "100ms"),
        cwd=application,
        module="tests.cli.hasty_pulse",
        PYTHONPATH=WITH_TESTS,
    ) as supervisor:
        supervisor.pids(1)
        assert pulse("submit", topic, "-o", "plain").code == 0
        supervisor.wait_for("begun in")  # and now its event loop is blocked
        supervisor.process.terminate()
        supervisor.wait_for("Stopping 1 process\\.")
        supervisor.process.terminate()
        assert supervisor.ended() == 1
        assert "did not stop in time and was killed" in supervisor.log
