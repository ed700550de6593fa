"""Handlers with process=True: what they return, raise and do to their process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pulse.v1 import pulse_pb2 as pb
from tests.eventually import eventually
from tests.sdk.fake_pulsed import FakePulsed


class Application:
    """A worker process, and the server that it is connected to."""

    def __init__(self, directory: Path) -> None:
        self.fake = FakePulsed().start()
        self.output = directory / "output"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("process_app.py"))],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "ADDRESS": self.fake.address,
                },
            )

    def run(self, job_id: str, topic: str, args: dict[str, Any], **fields: Any) -> pb.Result:
        self.fake.deliver(job_id, topic=topic, payload=json.dumps(args).encode(), **fields)
        self.fake.until(lambda: job_id in self.fake.results)
        return self.fake.results[job_id]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    application = Application(tmp_path_factory.mktemp("app"))
    yield application
    application.process.terminate()
    assert application.process.wait(20) == 0, application.output.read_text()
    application.fake.stop()


def await_fact(fact: Callable[[], Any]) -> None:
    asyncio.run(eventually(fact))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_handler_has_its_context_in_a_process_that_is_used_again(app: Application, tmp_path: Path) -> None:
    for number in (1, 2):
        args = {"number": number, "file": str(tmp_path / str(number))}
        assert app.run(f"facts{number}", "facts", args, attempt=2, metadata={"who": "me"}).success
    first, second = ((tmp_path / name).read_text().split() for name in "12")
    assert first[:4] == ["1", "2", "me", "True"]
    assert first[4:] == second[4:]
    assert first[5] == str(app.process.pid)
    assert app.output.read_text().count("printed by the handler") == 2


def test_lines_that_a_handler_logs_in_a_process_end_with_its_job(app: Application) -> None:
    assert app.run("logs1", "logs", {}, attempt=2).success
    await_fact(lambda: "shop: logged by the handler [logs logs1, attempt 2]\n" in app.output.read_text())


def test_async_handler_runs_in_a_process(app: Application, tmp_path: Path) -> None:
    assert app.run("async", "async", {"file": str(tmp_path / "pid")}).success
    assert int((tmp_path / "pid").read_text()) != app.process.pid


@pytest.mark.parametrize("topic", ["around", "around-async"])
def test_middleware_and_resources_are_those_of_the_process(
    app: Application, tmp_path: Path, topic: str
) -> None:
    assert app.run(topic, topic, {"file": str(tmp_path / "pid")}).success
    pid, *state = (tmp_path / "pid").read_text().split()
    assert state == ["opened", "in", pid]
    assert f"WARNING shop: opened in {pid}\n" in app.output.read_text()
    assert int(pid) != app.process.pid


@pytest.mark.parametrize(
    ("kind", "error", "fields"),
    [
        ("value", "ValueError: a bad value", {}),
        ("discard", "of no use", {"discard": True}),
        ("retry", "The handler asked", {"seconds": 7}),
        ("exit", "SystemExit: 3", {}),
        ("gone", "ProcessDied: The process of this attempt exited with code 4", {}),
        ("gone before its child", "ProcessDied: The process of this attempt exited with code 4", {}),
        ("segfault", "ProcessDied: The process of this attempt was killed by SIGSEGV", {}),
        ("killed", "ProcessDied: The process of this attempt was killed by SIGKILL. Perhaps", {}),
        ("fork", "ValueError: the parent", {}),
    ],
)
def test_failure_in_a_process_is_that_of_its_job(
    app: Application, kind: str, error: str, fields: dict[str, Any]
) -> None:
    result = app.run(kind, "fail", {"kind": kind})
    assert result.error.startswith(error)
    assert not result.success
    assert (result.discard, result.retry_after.seconds) == (
        fields.get("discard", False),
        fields.get("seconds", 0),
    )


def test_async_handler_that_exits_fails_its_job(app: Application) -> None:
    for number in range(2):
        assert app.run(f"exit{number}", "fail-async", {}).error.startswith("SystemExit: 5")


def test_async_handler_that_cancels_its_own_task_fails_its_job(app: Application) -> None:
    assert app.run("cancels-itself", "cancels-itself", {}).error.startswith("CancelledError")


@pytest.mark.parametrize("topic", ["stops-loop", "exits-in-callback"])
def test_handler_that_ends_the_event_loop_of_its_process_ends_the_process(
    app: Application, topic: str
) -> None:
    result = app.run(topic, topic, {})
    assert result.error.startswith("ProcessDied: The process of this attempt exited with code 70")


def test_handler_that_closes_the_output_of_its_process_succeeds(app: Application) -> None:
    assert app.run("closes-output", "closes-output", {}).success


def test_handlers_in_a_process_enqueue(app: Application) -> None:
    for topic in ("enqueue", "enqueue-async", "enqueue", "enqueue-async"):
        made = f"made{len(app.fake.results)}"
        assert app.run(made, topic, {"topic": made}).success
        assert made in {job.topic for job in app.fake.stored.values()}


def test_job_is_snoozed_in_a_process(app: Application) -> None:
    assert app.run("snooze", "fail", {"kind": "snooze"}).snooze.seconds == 9


@pytest.mark.parametrize("kind", ["python", "c", "stubborn"])
def test_process_that_hangs_is_killed_at_its_limit(app: Application, kind: str) -> None:
    result = app.run(f"hang-{kind}", "hang", {"kind": kind})
    assert result.timed_out
    assert result.error.startswith("TimedOut: The attempt took longer than its time limit of 0:00:00.2")
    assert "slot is lost" not in app.output.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_process_that_is_killed_while_it_is_idle_costs_no_attempt(app: Application, tmp_path: Path) -> None:
    pids = set()
    for number in range(3):
        file = tmp_path / str(number)
        assert app.run(f"idle{number}", "async", {"file": str(file)}).success
        idle = int(file.read_text())
        pids.add(idle)
        os.kill(idle, signal.SIGKILL)
        await_fact(lambda pid=idle: not is_alive(pid))  # type: ignore[misc]
        # Its first thread may be dead before the others.
        await_fact(lambda pid=idle: len(list(Path(f"/proc/{pid}/task").iterdir())) == 1)  # type: ignore[misc]
    assert len(pids) == 3


def test_what_a_process_has_started_is_killed_with_it(app: Application, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert app.run("hang-child", "hang", {"kind": "with child", "file": str(file)}).timed_out
    await_fact(lambda: not is_alive(int(file.read_text())))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it")
def test_what_a_process_has_started_is_killed_with_the_worker(tmp_path: Path) -> None:
    app = Application(tmp_path)
    file = tmp_path / "pids"
    app.fake.deliver("waits", topic="wait-with-child", payload=json.dumps({"file": str(file)}).encode())
    await_fact(lambda: file.exists() and file.read_text().endswith("."))
    app.process.kill()
    for pid in map(int, file.read_text().split()[:2]):
        await_fact(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
    app.process.wait()
    app.fake.stop()


def test_async_handler_in_a_process_is_canceled_at_its_limit(app: Application) -> None:
    result = app.run("hang-async", "hang-async", {})
    assert result.timed_out
    assert "await asyncio.Event().wait()" in result.error


def test_canceled_job_is_stopped_in_its_process(app: Application, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    app.fake.deliver("canceled", topic="wait", payload=json.dumps({"file": str(file)}).encode())
    await_fact(lambda: file.exists() and file.read_text())
    app.fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="canceled", attempt=1, run=1)]))
    await_fact(lambda: not is_alive(int(file.read_text())))
    assert "canceled" not in app.fake.results


def test_idle_processes_close_their_resources_when_the_worker_stops(tmp_path: Path) -> None:
    app = Application(tmp_path)
    assert app.run("around", "around", {"file": str(tmp_path / "pid")}).success
    app.process.terminate()
    assert app.process.wait(20) == 0
    assert f"closed in {(tmp_path / 'pid').read_text().split()[0]}\n" in app.output.read_text()
    assert f"closed in {app.process.pid}\n" in app.output.read_text()
    app.fake.stop()


def test_drain_interrupts_processes_and_releases_their_jobs(tmp_path: Path) -> None:
    app = Application(tmp_path)
    file = tmp_path / "pid"
    app.fake.deliver("running", topic="wait", payload=json.dumps({"file": str(file)}).encode())
    await_fact(lambda: file.exists() and file.read_text())
    app.process.terminate()
    assert app.process.wait(20) == 0
    assert app.fake.released == ["running"]
    assert not is_alive(int(file.read_text()))
    app.fake.stop()


def test_processes_end_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    app = Application(tmp_path)
    file = tmp_path / "pid"
    app.fake.deliver("running", topic="wait", payload=json.dumps({"file": str(file)}).encode())
    await_fact(lambda: file.exists() and file.read_text())
    app.process.send_signal(signal.SIGKILL)
    app.process.wait(20)
    await_fact(lambda: not is_alive(int(file.read_text())))
    app.fake.stop()
