"""The embedded Postgres is started again when it ends, at the same address; or the end is clear."""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pulse.supervision.processes import Restarts
from pulse_server.embedded import EmbeddedPostgres, RestartFailed, kept
from pulse_server.embedded import cluster as embedded_cluster
from pulse_server.embedded.cluster import read_postmaster
from pulse_server.embedded.directory import SOCKET
from pulse_server.embedded.processes import ParentWatch
from tests.embedded.observation import await_fact, is_gone, run_sql

AT_ONCE = Restarts(0, 0, 0)


class Kept:
    """A server that is kept, and what became of it."""

    def __init__(self, directory: Path, cluster: EmbeddedPostgres) -> None:
        self.directory = directory
        self.cluster = cluster
        self.is_given_up = threading.Event()

    @property
    def pid(self) -> int:
        server = read_postmaster(self.directory / "postgres")
        return server.pid if server is not None and server.is_ready else 0

    def await_another_than(self, pid: int) -> None:
        await_fact(lambda: self.pid not in (0, pid), "another server is ready")


@contextmanager
def keeping_server(
    directory: Path, watch: ParentWatch | None = None, restarts: Restarts = AT_ONCE
) -> Iterator[Kept]:
    with EmbeddedPostgres(directory, parent_watch=watch, settings={"fsync": "off"}) as cluster:
        server = Kept(directory, cluster)
        with kept(cluster, restarts, server.is_given_up.set):
            yield server


def test_killed_server_is_started_again_at_the_same_address(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with keeping_server(directory) as server:
        dsn, killed = server.cluster.dsn, server.pid
        run_sql(dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
        os.kill(killed, signal.SIGKILL)
        server.await_another_than(killed)
        assert run_sql(dsn, "SELECT answer FROM kept") == 42
        await_fact(lambda: "postgres_restarted" in caplog.messages, "the restart is logged")
        ended = next(record for record in caplog.records if record.message == "postgres_ended")
        assert ended.__dict__["how"] == "SIGKILL"
    assert not (directory / "postgres" / "postmaster.pid").exists()


def test_server_whose_socket_was_deleted_is_started_again(directory: Path) -> None:
    with keeping_server(directory) as server:
        unreachable = server.pid
        (directory / "socket" / SOCKET).unlink()
        server.await_another_than(unreachable)
        assert run_sql(server.cluster.dsn, "SELECT 1") == 1


def test_server_that_outlives_its_guard_is_ended_and_started_again(directory: Path) -> None:
    with keeping_server(directory, watch="pipe") as server:
        orphan = server.pid
        os.kill(os.getpgid(orphan), signal.SIGKILL)
        server.await_another_than(orphan)
        assert is_gone(orphan)
        assert run_sql(server.cluster.dsn, "SELECT 1") == 1


def end_after(directory: Path, disturbance: Callable[[], object]) -> None:
    """Kill a kept server after a disturbance, and wait until it is given up."""
    with keeping_server(directory) as server:
        killed = server.pid
        disturbance()
        os.kill(killed, signal.SIGKILL)
        assert server.is_given_up.wait(60)


@pytest.mark.parametrize("lost", ["the directory", "the database", "the lock"])
def test_lost_directory_is_the_end_and_no_empty_database_is_made(directory: Path, lost: str) -> None:
    path = {
        "the directory": directory,
        "the database": directory / "postgres",
        "the lock": directory / "lock",
    }
    with pytest.raises(RestartFailed, match=r"removed or replaced while its server ran.*PULSE_DATA_DIR"):
        end_after(directory, lambda: path[lost].rename(directory.with_name("aside")))
    assert not path[lost].exists()
    directory.mkdir(exist_ok=True)


def test_server_that_cannot_start_is_given_up_with_its_log(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = directory / "postgres" / "postgresql.conf"
    wrong = settings.read_text() + "shared_buffers = 'plenty'\n"
    with pytest.raises(RestartFailed, match=r'cannot be started again(?s:.*)parameter "shared_buffers"'):
        end_after(directory, lambda: settings.write_text(wrong))
    assert caplog.messages.count("postgres_start_failed") == embedded_cluster.MOST_FAILED_STARTS - 1
    assert caplog.messages[-1] == "postgres_given_up"


def test_server_that_could_not_start_for_a_while_is_started(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = directory / "postgres" / "postgresql.conf"
    right = settings.read_text()
    with keeping_server(directory, restarts=Restarts(0.01, 0.01, 0)) as server:
        killed = server.pid
        settings.write_text(f"{right}shared_buffers = 'plenty'\n")
        os.kill(killed, signal.SIGKILL)
        await_fact(lambda: "postgres_start_failed" in caplog.messages, "a start failed")
        settings.write_text(right)
        server.await_another_than(killed)
        assert run_sql(server.cluster.dsn, "SELECT 1") == 1


def test_end_does_not_wait_for_a_start_that_is_delayed(directory: Path) -> None:
    with keeping_server(directory, restarts=Restarts(3600, 3600, 3600)) as server:
        killed = server.pid
        os.kill(killed, signal.SIGKILL)
        await_fact(lambda: is_gone(killed), "the server is dead")
    assert not server.is_given_up.is_set()
