"""The embedded Postgres when processes are killed: no process and no incomplete data is left."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from pulse.supervision.processes import ProcessGroup
from pulse_server.embedded import EmbeddedPostgres
from pulse_server.embedded.processes import Identity, Launcher, ParentWatch
from tests.embedded.observation import await_fact, is_gone, processes_that_mention, run_sql
from tests.embedded.owner import owner

needs_proc = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks into /proc")
WATCHES = [
    pytest.param(
        "signal", marks=pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal")
    ),
    "pipe",
]


@pytest.mark.parametrize("watch", WATCHES)
def test_server_ends_when_its_owner_is_killed(directory: Path, watch: str) -> None:
    with owner(directory, parent_watch=watch) as killed:
        server = killed.answer()["server"]
        assert not is_gone(server)
        killed.process.kill()
        await_fact(lambda: is_gone(server), "the server ended with its owner")


@pytest.mark.parametrize("watch", WATCHES)
def test_program_that_ignores_every_request_is_killed(watch: ParentWatch) -> None:
    itself = Identity("self", os.geteuid(), os.getegid())
    child = Launcher(itself, watch).spawn([sys.executable, "-c", STUBBORN], Path("/"), output=subprocess.PIPE)
    with child.process:
        assert child.process.stdout is not None
        pid = int(child.process.stdout.readline())
        child.stop(
            [(signal.SIGINT, timedelta(milliseconds=50)), (signal.SIGQUIT, timedelta(milliseconds=50))]
        )
    await_fact(lambda: is_gone(pid), "the program ended")


def test_program_that_cannot_start_leaves_no_descriptor_open() -> None:
    before = lowest_free_descriptor()
    with pytest.raises(FileNotFoundError):
        ProcessGroup(lambda lifeline: ["/there/is/no/such/program"])
    assert lowest_free_descriptor() == before


def lowest_free_descriptor() -> int:
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


STUBBORN = """
import os, signal
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""


@pytest.mark.parametrize("watch", WATCHES)
def test_interrupt_from_the_terminal_reaches_the_owner_only(directory: Path, watch: str) -> None:
    with owner(directory, parent_watch=watch) as interrupted:
        server = interrupted.answer()["server"]
        assert os.getpgid(server) != os.getpgid(interrupted.process.pid)
        interrupted.end()
        assert is_gone(server)


def test_data_survives_when_owner_and_server_are_killed_together(directory: Path) -> None:
    with owner(directory) as killed:
        answer = killed.answer()
        run_sql(answer["dsn"], "CREATE TABLE kept AS SELECT 42 AS answer")
        killed.process.send_signal(signal.SIGSTOP)  # so that both are dead before either can react
        os.kill(answer["server"], signal.SIGKILL)
        killed.process.kill()
    with EmbeddedPostgres(directory) as cluster:
        assert run_sql(cluster.dsn, "SELECT answer FROM kept") == 42


def test_next_owner_waits_for_the_server_of_a_killed_one(directory: Path) -> None:
    with owner(directory) as killed:
        server = killed.answer()["server"]
        os.kill(server, signal.SIGSTOP)
        killed.process.kill()
        killed.process.wait()
        with owner(directory) as successor:
            holds = f"{successor.process.pid}\n"
            await_fact(lambda: (directory / "lock").read_text() == holds, "the successor holds the lock")
            os.kill(server, signal.SIGCONT)
            assert successor.answer()["server"] != server
            successor.end()


def test_address_is_the_same_after_owner_and_server_are_killed(directory: Path) -> None:
    with owner(directory) as killed:
        answer = killed.answer()
        os.kill(answer["server"], signal.SIGKILL)
        killed.process.kill()
    with EmbeddedPostgres(directory) as cluster:
        assert cluster.dsn == answer["dsn"]
        assert run_sql(cluster.dsn, "SELECT 1") == 1


def test_stale_file_that_names_an_unrelated_live_process_does_not_prevent_the_start(directory: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd="/") as stranger:
        lines = [
            str(stranger.pid),
            str(directory / "postgres"),
            "1700000000",
            "5432",
            "/tmp",
            "",
            "1 1",
            "ready",
        ]
        (directory / "postgres" / "postmaster.pid").write_text("\n".join(lines) + "\n")
        with EmbeddedPostgres(directory) as cluster:
            assert run_sql(cluster.dsn, "SELECT 1") == 1
        stranger.kill()


@needs_proc
def test_owner_killed_during_initdb_leaves_no_incomplete_data(tmp_path: Path) -> None:
    directory = tmp_path / "pulse"
    with owner(directory) as killed:
        await_fact(lambda: any(directory.glob("postgres.new-*/*")), "initdb writes files")
        killed.process.kill()
    await_fact(lambda: not processes_that_mention(directory), "every process on the directory ended")
    with EmbeddedPostgres(directory) as cluster:
        assert run_sql(cluster.dsn, "SELECT 1") == 1
        assert not list(directory.glob("postgres.new-*"))
