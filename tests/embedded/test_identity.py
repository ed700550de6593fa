"""The account that runs the embedded Postgres, and that nothing else on the machine changes."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulse_server.embedded import DataDirectoryUnusable, EmbeddedPostgres, EmbeddedUnavailable
from pulse_server.embedded.directory import candidate_directories, choose_installation
from pulse_server.embedded.processes import Identity, choose_identity
from tests.embedded.observation import run_sql
from tests.embedded.owner import ROOT, owner

UNPRIVILEGED = 65534
UNNAMED = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


def as_seen(path: Path) -> list[tuple[str, int, int, int]]:
    """Return mode and owner of the directory and all above it, with the user database's content."""
    found = [(str(each), each.stat()) for each in (path, *path.parents)]
    accounts = [(Path(file).read_text(), 0, 0, 0) for file in ("/etc/passwd", "/etc/group")]
    return [(name, each.st_mode, each.st_uid, each.st_gid) for name, each in found] + accounts


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every account may traverse: pytest's own are closed to others."""
    directory = Path(tempfile.mkdtemp(prefix="pulse-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def python_for(uid: int) -> str:
    """Return an interpreter that the account may run, or skip the test: root's own is often closed to it."""
    visitor = Identity("self", uid, uid)
    if not visitor.can_reach(ROOT / "src"):
        pytest.skip("the checkout is closed to other accounts")
    if not any(visitor.can_reach(directory) for directory in candidate_directories()):
        pytest.skip("no Postgres binaries are open to other accounts")
    for python in filter(None, (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin"))):
        check = [python, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            subprocess.run(check, user=uid, group=uid, extra_groups=[], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    pytest.skip("no Python from 3.11 on is open to other accounts")


@needs_root
def test_root_keeps_its_closed_directory_closed_and_makes_no_user(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    if "namespace" not in choose_identity(closed, closed / "none").launcher_option:
        pytest.skip("this machine forbids user namespaces")
    before = as_seen(closed)
    with EmbeddedPostgres(closed / "pulse") as cluster:
        assert run_sql(cluster.dsn, "SELECT 1") == 1
    assert as_seen(closed) == before
    written = [closed / "pulse", *(closed / "pulse").rglob("*")]
    assert {path.lstat().st_uid for path in written} == {0}
    assert not any(path.lstat().st_mode & (stat.S_IRWXO | stat.S_IWGRP) for path in written)


@needs_root
@pytest.mark.parametrize("uid", [UNPRIVILEGED, UNNAMED])
def test_ordinary_user_with_or_without_a_name_owns_its_files(open_directory: Path, uid: int) -> None:
    python = python_for(uid)
    if (
        uid == UNNAMED
        and "namespace" not in choose_identity(open_directory, open_directory / "none").launcher_option
    ):
        pytest.skip("this machine forbids user namespaces, and initdb wants a user with a name")
    home = open_directory / "home"
    home.mkdir(mode=0o700)
    os.chown(home, uid, uid)
    with owner(home / "pulse", python=python, uid=uid) as started:
        answer = started.answer()
        assert answer.get("uid") == uid, answer
        started.end()
    assert {path.lstat().st_uid for path in (home / "pulse").rglob("*")} == {uid}


@needs_root
def test_root_without_namespaces_uses_an_unprivileged_account(open_directory: Path) -> None:
    identity = choose_identity(open_directory, open_directory / "none", allow_namespace=False)
    if not any(identity.can_reach(directory) for directory in candidate_directories()):
        pytest.skip("no Postgres binaries are open to other accounts")
    before = as_seen(open_directory)
    with EmbeddedPostgres(open_directory / "pulse", allow_namespace=False) as cluster:
        run_sql(cluster.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    data = open_directory / "pulse" / "postgres"
    assert {path.lstat().st_uid for path in (data, *data.rglob("*"))} == {identity.uid}
    assert as_seen(open_directory) == before
    # The data decides from then on, also where namespaces are allowed again.
    with EmbeddedPostgres(open_directory / "pulse") as cluster:
        assert run_sql(cluster.dsn, "SELECT answer FROM kept") == 42


@needs_root
def test_account_in_place_of_root_reaches_data_below_a_closed_directory(open_directory: Path) -> None:
    closed = open_directory / "closed"
    closed.mkdir(mode=0o700)
    identity = choose_identity(closed, closed / "none", allow_namespace=False)
    try:
        chosen = choose_installation(closed / "none", is_reachable=identity.can_reach)
    except EmbeddedUnavailable:
        pytest.skip("no Postgres binaries are open to other accounts")
    before = as_seen(closed)
    cluster = EmbeddedPostgres(closed / "pulse", allow_namespace=False)
    if chosen.major < 16:
        with pytest.raises(DataDirectoryUnusable, match=r"may not enter .*PULSE_DATA_DIR"):
            cluster.start()
    else:
        with cluster:
            assert run_sql(cluster.dsn, "SELECT 1") == 1
    assert as_seen(closed) == before


@needs_root
def test_root_without_namespaces_cannot_serve_data_that_belongs_to_root(directory: Path) -> None:
    if (directory / "postgres").stat().st_uid != 0:
        pytest.skip("this machine forbids user namespaces, so the data is not root's")
    with pytest.raises(DataDirectoryUnusable, match="belongs to root"):
        EmbeddedPostgres(directory, allow_namespace=False).start()


def test_named_user_runs_the_server_as_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1)
    monkeypatch.setattr("pulse_server.embedded.processes._has_name", lambda _: True)
    assert choose_identity(tmp_path, tmp_path / "none").launcher_option == "self"
