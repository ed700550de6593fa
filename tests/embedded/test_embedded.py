"""The embedded Postgres: how it starts, stops and refuses."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from pulse_server.embedded import (
    DataDirectoryInUse,
    DataDirectoryUnusable,
    EmbeddedPostgres,
    StartFailed,
    WrongMajorVersion,
    default_data_directory,
)
from pulse_server.embedded.processes import default_parent_watch
from tests.embedded.observation import run_sql
from tests.embedded.owner import owner
from tests.rows import each_row


def socket_directory(dsn: str) -> Path:
    return Path(parse_qs(urlsplit(dsn).query)["host"][0])


def test_fresh_directory_becomes_a_database_that_keeps_its_data(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / "new" / "pulse") as first:
        run_sql(first.dsn, "CREATE TABLE kept AS SELECT 'grüße' AS word")
    with EmbeddedPostgres(tmp_path / "new" / "pulse") as second:
        assert run_sql(second.dsn, "SELECT word FROM kept") == "grüße"
        assert run_sql(second.dsn, "SELECT current_user || '/' || current_database()") == "pulse/pulse"
        assert run_sql(second.dsn, "SHOW server_encoding") == "UTF8"
        assert run_sql(second.dsn, "SHOW data_checksums") == "on"
        assert run_sql(second.dsn, "SHOW fsync") == "on"
    assert sorted(path.name for path in (tmp_path / "new" / "pulse").iterdir()) == [
        "lock",
        "postgres",
        "postgres.log",
    ]


def test_server_listens_on_a_private_socket_only(directory: Path) -> None:
    with EmbeddedPostgres(directory) as cluster:
        assert run_sql(cluster.dsn, "SHOW listen_addresses") == ""
        sockets = socket_directory(cluster.dsn)
        assert sockets.stat().st_mode & 0o777 == 0o700
    assert not sockets.exists()


def test_stopping_twice_does_nothing_more(directory: Path) -> None:
    cluster = EmbeddedPostgres(directory)
    cluster.start()
    cluster.stop()
    cluster.stop()
    assert not cluster.is_running
    with cluster:
        assert cluster.is_running


def test_stop_ends_sessions_that_are_still_open(directory: Path) -> None:
    cluster = EmbeddedPostgres(directory)
    cluster.start()
    with subprocess.Popen(
        [sys.executable, "-c", IDLE_SESSION, cluster.dsn], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == b"connected\n"
        cluster.stop()
        session.kill()


IDLE_SESSION = """
import asyncio, asyncpg, sys
async def main():
    connection = await asyncpg.connect(sys.argv[1])
    await connection.execute("BEGIN")
    print("connected", flush=True)
    await connection.execute("SELECT pg_sleep(3600)")
asyncio.run(main())
"""


def test_error_of_a_second_owner_names_the_first(directory: Path) -> None:
    with owner(directory) as first:
        first.answer()
        with pytest.raises(DataDirectoryInUse, match=rf"pid {first.process.pid}\b") as refusal:
            EmbeddedPostgres(directory).start()
        assert refusal.value.pid == first.process.pid
        first.end()


def test_directory_of_an_absent_major_version_is_refused_untouched(directory: Path) -> None:
    (directory / "postgres" / "PG_VERSION").write_text("12\n")
    with pytest.raises(WrongMajorVersion, match="written by Postgres 12, but only Postgres") as refusal:
        EmbeddedPostgres(directory).start()
    assert str(directory) in str(refusal.value)
    assert "pg_upgrade" in str(refusal.value)
    assert (directory / "postgres" / "PG_VERSION").read_text() == "12\n"


def test_directory_with_foreign_content_is_refused_untouched(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "letter.txt").write_text("keep me")
    with pytest.raises(DataDirectoryUnusable, match="not Postgres data"):
        EmbeddedPostgres(tmp_path).start()
    assert (tmp_path / "postgres" / "letter.txt").read_text() == "keep me"


def test_failed_start_shows_the_log_and_unlocks_the_directory(directory: Path) -> None:
    with pytest.raises(StartFailed, match='invalid value for parameter "shared_buffers"'):
        EmbeddedPostgres(directory, settings={"shared_buffers": "plenty"}).start()
    with EmbeddedPostgres(directory) as cluster:
        assert run_sql(cluster.dsn, "SELECT 1") == 1


def test_server_that_is_not_ready_in_time_is_stopped(directory: Path) -> None:
    cluster = EmbeddedPostgres(directory)
    with pytest.raises(StartFailed, match="not ready after 0 s"):
        cluster.start(timeout=timedelta(0))
    assert not cluster.is_running
    assert not (directory / "postgres" / "postmaster.pid").exists()


def test_failed_initdb_shows_the_reason_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.embedded.cluster.SUPERUSER", "pg_reserved")
    with pytest.raises(StartFailed, match='superuser name "pg_reserved" is disallowed'):
        EmbeddedPostgres(tmp_path / "pulse").start()
    assert [path.name for path in (tmp_path / "pulse").iterdir()] == ["lock"]


@pytest.mark.parametrize("name", ["lock", "postgres.log"])
@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_link_of_another_account_is_not_followed(
    tmp_path: Path, name: str, link: Callable[[Path, Path], None]
) -> None:
    ours = tmp_path / "ours.txt"
    ours.write_text("keep me")
    (tmp_path / "pulse").mkdir()
    link(tmp_path / "pulse" / name, ours)
    with pytest.raises(DataDirectoryUnusable, match=f"{name}"):
        EmbeddedPostgres(tmp_path / "pulse").start()
    assert ours.read_text() == "keep me"


def test_directory_that_every_account_may_write_to_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    with pytest.raises(DataDirectoryUnusable, match=r"every account .* chmod o-w"):
        EmbeddedPostgres(directory).start()
    assert not list(directory.iterdir())


def test_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pulse").write_text("a file")
    with pytest.raises(DataDirectoryUnusable, match="PULSE_DATA_DIR"):
        EmbeddedPostgres(tmp_path / "pulse").start()


def test_overlong_log_is_set_aside(directory: Path) -> None:
    os.truncate(directory / "postgres.log", 11 * 1024 * 1024)
    with EmbeddedPostgres(directory):
        assert (directory / "postgres.log").stat().st_size < 1024 * 1024
    assert (directory / "postgres.log.1").stat().st_size == 11 * 1024 * 1024


def test_settings_of_other_servers_in_the_environment_are_ignored(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGDATA", "/nonexistent")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("LC_ALL", "xx_XX.UTF-8")
    with EmbeddedPostgres(directory) as cluster:
        assert run_sql(cluster.dsn, "SELECT 1") == 1


def test_thread_that_may_end_early_starts_the_server_under_a_guard() -> None:
    chosen: list[str] = []
    thread = threading.Thread(target=lambda: chosen.append(default_parent_watch()))
    thread.start()
    thread.join()
    assert chosen == ["pipe"]


@each_row(
    "environment, expected",
    [
        ({"PULSE_DATA_DIR": "/srv/pulse", "XDG_DATA_HOME": "/data"}, Path("/srv/pulse")),
        ({"XDG_DATA_HOME": "/data"}, Path("/data/pulse")),
        ({"XDG_DATA_HOME": "relative", "HOME": "/home/ada"}, Path("/home/ada/.local/share/pulse")),
        ({"PULSE_DATA_DIR": ""}, Path.home() / ".local/share/pulse"),
    ],
)
def test_default_directory_follows_the_environment(environment: dict[str, str], expected: Path) -> None:
    assert default_data_directory(environment) == expected
