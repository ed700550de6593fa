"""`pulsed psql` opens the embedded database of a running pulsed, or prints why not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pulse_server.embedded import EmbeddedError, EmbeddedPostgres, cluster, psql_command


def pulsed_psql(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DB_", "PULSE_"))}
    return subprocess.run(
        [sys.executable, "-m", "pulse_server", "psql", *arguments],
        env=inherited | {"PULSE_DATA_DIR": str(directory)} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_psql_opens_the_database_of_a_server_that_runs(directory: Path) -> None:
    with EmbeddedPostgres(directory, settings={"fsync": "off"}):
        result = pulsed_psql(directory, "--", "-At", "-c", "SELECT current_user || '/' || current_database()")

    assert (result.returncode, result.stdout, result.stderr) == (0, "pulse/pulse\n", "")


def test_database_that_does_not_run_is_an_error(directory: Path, tmp_path: Path) -> None:
    for place in (directory, tmp_path / "nowhere"):
        result = pulsed_psql(place)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr.startswith(f"pulsed: No pulsed of yours runs on {place}")
        assert result.stderr.count("\n") == 1


def test_external_database_is_not_opened(directory: Path) -> None:
    result = pulsed_psql(directory, DB_HOST="postgres://localhost/mine")

    assert result.returncode == 1
    assert "DB_HOST names another one: give psql its address." in result.stderr


def test_missing_psql_is_an_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "candidate_directories", lambda: iter(()))
    monkeypatch.setenv("PATH", "/nowhere")
    with (
        EmbeddedPostgres(directory, settings={"fsync": "off"}),
        pytest.raises(EmbeddedError, match=r"There is no psql on this machine\. Install"),
    ):
        psql_command(directory)
