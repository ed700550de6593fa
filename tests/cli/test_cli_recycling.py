"""Processes are replaced after a number of jobs or past a limit of memory, without losing a job."""

import socket
import time
from collections import Counter
from pathlib import Path

import pytest

import pulse as sdk
from tests.cli.command_line import CommandLine, until
from tests.cli.worker_processes import running
from tests.rows import each_row

COUNTING = """
import os
import pulse

app = pulse.Pulse(concurrency=5)

@app.job("{topic}")
async def note(number: int) -> None:
    line = f"{{os.getpid()}} {{number}}\\n".encode()
    file = os.open("done.txt", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(file, line)
    os.close(file)
"""

LEAKING = """
import os
import pulse

app = pulse.Pulse(concurrency=1)
kept = []

@app.job("{topic}")
async def leak() -> None:
    kept.append(os.urandom(60 << 20))
"""


# The producer is faster than processes that start all the time: without a bound, what they have to do at the
# end depends on the machine.
MOST_WAITING = 200


def done(directory: Path) -> int:
    """Return how many jobs have run."""
    file = directory / "done.txt"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def most_at_once(log: str) -> int:
    """Return how many processes there were at most at one moment."""
    alive = most = 0
    for line in log.splitlines():
        alive += ("has started." in line) - ("exited with code" in line)
        most = max(most, alive)
    return most


def test_recycling_under_load_loses_and_doubles_no_job(
    pulse: CommandLine, address: str, tmp_path: Path, topic: str
) -> None:
    (tmp_path / "tasks.py").write_text(COUNTING.format(topic=topic))
    with (
        running(
            pulse, "worker", "tasks:app", "--processes", "2", "--max-jobs", "100", cwd=tmp_path
        ) as supervisor,
        sdk.SyncPulse(address) as p,
    ):
        supervisor.pids(2)
        total = 0
        while supervisor.log.count("is replaced: it has done") < 4:
            if total - done(tmp_path) > MOST_WAITING:
                time.sleep(0.01)
                continue
            p.enqueue_many(topic, [{"number": total + number} for number in range(20)])
            total += 20
        until(
            pulse,
            ["topics", "--search", topic],
            lambda topics: not any(row["ready"] + row["running"] for row in topics),
        )
        supervisor.process.terminate()
        assert supervisor.ended() == 0
        assert most_at_once(supervisor.log) <= 3
    lines = [line.split() for line in (tmp_path / "done.txt").read_text().splitlines()]
    assert Counter(int(number) for _, number in lines) == Counter(range(total))
    assert len({pid for pid, _ in lines}) > 2


def test_process_past_its_memory_is_replaced(
    pulse: CommandLine, address: str, tmp_path: Path, topic: str
) -> None:
    (tmp_path / "tasks.py").write_text(LEAKING.format(topic=topic))
    with running(
        pulse, "worker", "tasks:app", "--processes", "1", "--max-memory", "150M", cwd=tmp_path
    ) as supervisor:
        (first,) = supervisor.pids(1)
        for _ in range(3):
            assert pulse("submit", topic, "--wait").code == 0
        supervisor.wait_for(rf"pid {first}\) is replaced: it takes \d+ MiB of memory, more than 150 MiB")
        supervisor.wait_for(rf"pid {first}\) exited with code 0")
        assert pulse("submit", topic, "--wait").code == 0
        with sdk.SyncPulse(address) as p:
            (worker,) = [one for one in p.workers() if topic in one.topics]
        assert worker.last_exit.startswith("was replaced: it takes")
        until(
            pulse,
            ["attention"],
            lambda found: any(
                (one["kind"], one["worker_id"]) == ("memory", worker.worker_id) for one in found
            ),
        )
        assert worker.host == socket.gethostname()
        assert worker.memory_bytes > 1 << 20
        supervisor.process.terminate()
        assert supervisor.ended() == 0


@pytest.mark.parametrize("limit", [("--max-jobs", "3"), ("--max-memory", "16M")])
def test_worker_without_a_supervisor_drains_and_ends_with_0_at_its_limit(
    pulse: CommandLine, tmp_path: Path, topic: str, limit: tuple[str, str]
) -> None:
    (tmp_path / "tasks.py").write_text(COUNTING.format(topic=topic))
    with running(pulse, "worker", "tasks:app", *limit, cwd=tmp_path) as worker:
        for number in range(3):
            pulse("submit", topic, "--payload", f'{{"number": {number}}}')
        assert worker.ended() == 0
        assert "drains and ends: it " in worker.log


@each_row("size", ["512", "1000000", "12 apples", ""])
def test_size_without_a_unit_is_refused(pulse: CommandLine, size: str) -> None:
    result = pulse("worker", "tasks:app", "--max-memory", size)
    assert result.code == 2
    assert "write a number with a unit, such as 512M" in result.err
