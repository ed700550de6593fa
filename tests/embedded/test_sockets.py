"""The address of the embedded Postgres: the same for each start, and closed to other accounts."""

import subprocess
from pathlib import Path

import pytest

from pulse_server.embedded import DataDirectoryUnusable, EmbeddedPostgres, psql_command
from pulse_server.embedded.directory import SOCKET, DataDirectory, socket_places
from tests.embedded.observation import run_sql


def test_address_is_the_same_for_each_start(directory: Path) -> None:
    addresses = []
    for _ in range(2):
        with EmbeddedPostgres(directory) as cluster:
            addresses.append(cluster.dsn)
            assert (directory / "socket" / SOCKET).is_socket()
        assert not (directory / "socket").exists()
    assert addresses == [f"postgresql://pulse@/pulse?host={directory}/socket&port=5432"] * 2


@pytest.mark.parametrize("name", ["a-rather-long-name-for-a-directory" * 6, "pulse, too", "pulse:2"])
def test_path_that_cannot_be_an_address_has_one_in_tmp(
    initialized_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    subprocess.run(["cp", "-a", initialized_directory / "postgres", tmp_path / name], check=True)
    with EmbeddedPostgres(tmp_path / name) as cluster:
        first = cluster.dsn
        assert run_sql(first, "SELECT 1") == 1
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with EmbeddedPostgres(tmp_path / name) as cluster:
        assert cluster.dsn == first
    place = socket_places(tmp_path / name)[1]
    assert f"host={place}&" in first
    assert not place.exists()


def test_address_of_a_path_with_a_blank_is_read_by_each_driver(
    initialized_directory: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "my data"
    subprocess.run(["cp", "-a", initialized_directory, directory], check=True)
    with EmbeddedPostgres(directory) as cluster:
        assert run_sql(cluster.dsn, "SELECT 1") == 1
        psql = [psql_command(directory)[0], cluster.dsn, "-Atc", "SELECT 1"]
        assert subprocess.run(psql, capture_output=True, text=True).stdout == "1\n"


def test_directory_that_others_may_open_is_replaced(directory: Path) -> None:
    (directory / "socket").mkdir()
    (directory / "socket").chmod(0o777)
    with EmbeddedPostgres(directory) as cluster:
        assert (directory / "socket").stat().st_mode & 0o777 == 0o700
        assert run_sql(cluster.dsn, "SELECT 1") == 1


def test_directory_with_a_file_of_another_is_refused(directory: Path) -> None:
    (directory / "socket").mkdir()
    (directory / "socket").chmod(0o777)
    (directory / "socket" / "letter.txt").write_text("keep me")
    with pytest.raises(DataDirectoryUnusable, match=r"socket is in the place of its socket"):
        EmbeddedPostgres(directory).start()
    assert (directory / "socket" / "letter.txt").read_text() == "keep me"


def test_link_to_the_sockets_of_another_server_is_refused(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "other" / SOCKET).write_text("in use")
    (directory / "socket").symlink_to(tmp_path / "other")
    with pytest.raises(DataDirectoryUnusable, match=r"socket is in the place of its socket"):
        EmbeddedPostgres(directory).start()
    assert (tmp_path / "other" / SOCKET).read_text() == "in use"


def test_copy_of_a_directory_leaves_the_socket_of_its_original(directory: Path, tmp_path: Path) -> None:
    with EmbeddedPostgres(directory) as cluster:
        copy = DataDirectory(tmp_path / "copy")
        copy.path.mkdir()
        (copy.path / "lock").write_text((directory / "lock").read_text())
        copy.acquire()
        copy.release()
        assert run_sql(cluster.dsn, "SELECT 1") == 1
