"""What a worker and a process of handlers send to each other: interruptions before the start, and results."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pulse
from pulse.v1 import pulse_pb2 as pb
from pulse.worker.processes import Child, Done, Load, ProcessDied, Run, receive
from tests.sdk.fake_pulsed import PATIENCE_SECONDS, FakePulsed
from tests.sdk.test_sdk_processes import await_fact

# Every process but the first one waits in its import.
SLOW_IMPORT = """
    import asyncio, logging, os, time
    from pathlib import Path
    import pulse

    here = Path(__file__).parent
    p = pulse.Pulse(concurrency=1)

    @p.job("die", process=True)
    def die() -> None:
        os._exit(4)

    @p.job("note", process=True)
    def note(ctx: pulse.Context) -> None:
        with (here / "ran").open("a") as ran:
            ran.write(f"{ctx.job_id} ")

    if __name__ == "__main__":
        logging.basicConfig(level=logging.INFO)
        asyncio.run(p.run())
    elif (here / "first").exists():
        (here / "importing").touch()
        while not (here / "may-go-on").exists():
            time.sleep(0.01)
    else:
        (here / "first").touch()
"""


def test_job_that_is_canceled_while_its_process_imports_does_not_run(
    fake: FakePulsed, tmp_path: Path
) -> None:
    script, output = tmp_path / "app.py", tmp_path / "output"
    script.write_text(textwrap.dedent(SLOW_IMPORT))
    path = os.pathsep.join(filter(None, sys.path))
    with output.open("w") as file:
        worker = subprocess.Popen(
            [sys.executable, str(script)],
            stderr=file,
            env={**os.environ, "PYTHONPATH": path, "PULSE_ADDR": fake.address},
        )
    try:
        fake.deliver("first", topic="die")
        fake.until(lambda: "first" in fake.results)
        fake.deliver("canceled", topic="note")
        await_fact((tmp_path / "importing").exists)
        fake.send(pb.StreamJobsResponse(stop=[pb.Claim(job_id="canceled", attempt=1, run=1)]))
        await_fact(lambda: "Job canceled (note) is stopped" in output.read_text())
        (tmp_path / "may-go-on").touch()
        fake.deliver("next", topic="note")
        fake.until(lambda: "next" in fake.results)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(20)
    assert fake.results["next"].success
    assert (tmp_path / "ran").read_text() == "next "


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setenv("ADDRESS", "localhost:1")
    script = str(Path(__file__).with_name("process_app.py"))
    child = Child(Load("__main__", script, "p", [], logging.WARNING, "MainProcess"))
    child.topics()
    killing = threading.Timer(PATIENCE_SECONDS, child.kill)  # its answer never came
    killing.start()
    yield child
    killing.cancel()
    child.end()


def attempt(topic: str, **arguments: Any) -> Run:
    payload = json.dumps(arguments).encode()
    assignment = pb.JobAssignment(job_id="j1", topic=topic, attempt=1, max_attempts=3, payload=payload)
    return Run(assignment.SerializeToString(), "worker", b"", 0, max_result_bytes=100)


@pytest.mark.parametrize("topic", ["wait", "async"])
@pytest.mark.parametrize("is_timed_out", [False, True])
def test_stop_that_a_process_reads_before_its_attempt_keeps_the_handler_from_starting(
    child: Child, tmp_path: Path, topic: str, is_timed_out: bool
) -> None:
    file = tmp_path / "pid"
    child.stop(0.3, is_timed_out)
    done = child.run(attempt(topic, file=str(file)), context=pulse.Context())
    assert not file.exists()
    assert done.is_interrupted is not is_timed_out
    if is_timed_out:
        assert done.failed is not None
        assert done.failed.timed_out


def test_stop_that_comes_before_the_task_of_an_async_handler_cancels_it(child: Child, tmp_path: Path) -> None:
    file = tmp_path / "pid"
    child._send(attempt("starts-late", file=str(file)))
    await_fact(file.exists)
    child.stop(0.0, is_timed_out=False)
    assert receive(child._pipe) == Done(is_interrupted=True)


def test_result_that_is_too_long_is_refused_in_the_process(child: Child) -> None:
    done = child.run(attempt("returns", length=98), context=pulse.Context())
    assert (done.failed, len(done.result or b"")) == (None, 100)

    done = child.run(attempt("returns", length=99), context=pulse.Context())
    assert done.result is None
    assert done.failed is not None
    assert done.failed.discard
    assert "a result of 101 bytes; 100 are allowed" in done.failed.error


def test_process_that_dies_before_its_first_message_is_reported_as_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = subprocess.Popen

    def start_and_wait(arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
        process = start(["false"], **options)
        process.wait()
        return process

    monkeypatch.setattr(subprocess, "Popen", start_and_wait)
    child = Child(Load("nowhere", "", "p", [], logging.INFO, "MainProcess"))
    with pytest.raises(ProcessDied, match="exited with code 1"):
        child.topics()
    child.end()
