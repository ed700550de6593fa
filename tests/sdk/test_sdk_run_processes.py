"""`run_processes`: a program that supervises processes of itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pulse
from tests.cli.serving import serving
from tests.postgres_cluster import Databases
from tests.rows import each_row

PROGRAM = """
import asyncio, logging, multiprocessing, os, sys  # multiprocessing gives the program a second name
from datetime import timedelta
import pulse

p = pulse.Pulse()

@p.job("where")
async def where() -> None:
    # In one piece: several processes write there.
    sys.stderr.write(f"ran in {os.environ['PULSE_PROCESS']} {os.getpid()} {sys.argv[1:]}\\n")

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(processName)s %(message)s")
    asyncio.run(p.run_processes(2, concurrency=3, drain_timeout=timedelta(seconds=5)))
"""

BLOCKING = (
    PROGRAM.replace("pulse.Pulse()", "pulse.SyncPulse()")
    .replace("async def", "def")
    .replace("asyncio.run(p.run_processes(", "(p.run_processes(")
)


@pytest.fixture(scope="module")
def address(databases: Databases, template_database: str) -> Iterator[str]:
    with databases.temporary(template_database) as dsn, serving(dsn) as address:
        yield address


@contextmanager
def program(directory: Path, source: str, address: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of its own. Each process of it holds the pipes open."""
    (directory / "program.py").write_text(source)
    with subprocess.Popen(
        [sys.executable, *(command or ("program.py", "an-argument"))],
        cwd=directory,
        env={**os.environ, "PULSE_ADDR": address, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("source", [PROGRAM, BLOCKING], ids=["Pulse", "SyncPulse"])
@pytest.mark.parametrize("command", [(), ("-m", "program", "an-argument")], ids=["script", "module"])
def test_program_runs_its_handlers_in_processes_until_sigterm(
    tmp_path: Path, address: str, source: str, command: tuple[str, ...]
) -> None:
    with program(tmp_path, source, address, *command) as process, pulse.SyncPulse(address) as p:
        assert process.stderr is not None
        job = p.enqueue("where")
        line = next(line for line in process.stderr if "ran in" in line)
        assert "['an-argument']" in line
        assert f" {process.pid} " not in line
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert p.get_job(job.id).attempts == 1


def test_program_that_is_killed_leaves_no_process(tmp_path: Path, address: str) -> None:
    with program(tmp_path, PROGRAM, address) as process, pulse.SyncPulse(address) as p:
        p.enqueue("where")
        assert process.stderr is not None
        assert any("ran in" in line for line in process.stderr)
        process.kill()
        process.communicate(timeout=60)


def test_call_without_a_guard_is_a_sentence(tmp_path: Path, address: str) -> None:
    source = PROGRAM.replace('__name__ == "__main__"', "True")
    with program(tmp_path, source, address) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Put the call behind `if __name__ ==" in errors


def test_client_that_is_no_global_is_refused() -> None:
    p = pulse.SyncPulse()
    p.register("topic", lambda: None)
    with pytest.raises(pulse.InvalidArgument, match="make it a global of a module"):
        p.run_processes(2)


@each_row("processes", [0, -1, 1001, "4"])
def test_number_of_processes_has_bounds(processes: int) -> None:
    with pytest.raises(pulse.InvalidArgument, match="processes has to be between 1 and 1000"):
        pulse.SyncPulse().run_processes(processes)


@each_row(
    "options, sentence",
    [
        ({"max_jobs": 0}, "max_jobs has to be at least 1"),
        ({"max_memory": 512}, "max_memory is a number of bytes"),
        ({"concurrency": 0}, "concurrency has to be between"),
        ({"topics": ["unknown"]}, "There is no handler for unknown"),
    ],
)
def test_bad_options_are_refused_before_a_process_starts(options: dict[str, int], sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        pulse.SyncPulse().run_processes(2, **options)  # type: ignore[arg-type]
