"""The load generator on a server with users and TLS: figures, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pulse
from benchmarks.load_generator.options import NoPassword, password_for
from benchmarks.load_generator.results import percentiles
from tests.cli.serving import serving
from tests.postgres_cluster import Databases
from tests.transport.tls_files import Authority, make_authority

ROOT = Path(__file__).resolve().parents[2]
USERS = "ops:swordfish:admin,bob:cod:producer"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def address(databases: Databases, template_database: str, authority: Authority) -> Iterator[str]:
    files = authority.server("localhost", "127.0.0.1")
    variables = {
        "PULSE_TLS_CERT": str(files.certificate),
        "PULSE_TLS_KEY": str(files.key),
        "PULSE_AUTH_USERS": USERS,
    }
    with databases.temporary(template_database) as dsn, serving(dsn, **variables) as address:
        yield address


def bench(
    address: str, authority: Authority, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PULSE_")}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "--addr", address, "--tls-ca", authority.file, *arguments],
        env=inherited | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"} | environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


async def test_load_is_measured_and_its_jobs_are_gone_afterwards(
    address: str, authority: Authority, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("swordfish\n")
    async with pulse.Pulse(address, user="ops", password="swordfish", ca=authority.file) as p:
        other = await p.enqueue("bench-load", {"not": "ours"})
        result = bench(
            *(address, authority, "--user", "ops", "--password-file", str(secret)),
            *("--rate", "40", "--seconds", "2", "--json", str(tmp_path / "figures.json")),
        )
        left = [job async for job in p.iter_jobs()]

    assert (result.returncode, result.stderr) == (0, "")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert (figures["due"], figures["submitted"], figures["started"]) == (80, 80, 80)
    for name in ("submit_ms", "submit_to_start_ms"):
        taken = figures[name]
        assert 0 < taken["p50"] <= taken["p95"] <= taken["p99"] <= taken["max"]
    assert "as ops (admin)" in result.stdout
    assert f"Deleted 80 jobs of {figures['topic']}, 0 of which had not finished." in result.stdout
    assert [job.id for job in left] == [other.id], "a job of another topic stays, and waits"


def test_role_that_may_only_submit_measures_submits_and_says_what_stays(
    address: str, authority: Authority
) -> None:
    result = bench(
        *(address, authority, "--user", "bob", "--rate", "20", "--seconds", "0.5"), PULSE_PASSWORD="cod"
    )

    assert result.returncode == 0
    assert "The role producer may not run jobs, so submits alone are measured." in result.stderr
    assert "submitted   10 of 10" in result.stdout
    assert "The role producer may not delete jobs." in result.stdout


def test_jobs_without_a_worker_are_canceled_and_deleted(address: str, authority: Authority) -> None:
    result = bench(
        *(address, authority, "--user", "ops", "--rate", "20", "--seconds", "0.5", "--no-worker"),
        PULSE_PASSWORD="swordfish",
    )

    assert result.returncode == 0
    assert "10 of which had not finished." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "password", "sentence"),
    [
        (
            ["--user", "ops"],
            "",
            "The password of 'ops' is missing: set PULSE_PASSWORD, or give --password-file.",
        ),
        (["--user", "ops"], "trout", "The user or the password is wrong."),
        ([], "", "This server wants a user and a password"),
    ],
)
def test_refused_login_is_reported(
    address: str, authority: Authority, arguments: list[str], password: str, sentence: str
) -> None:
    result = bench(address, authority, *arguments, **({"PULSE_PASSWORD": password} if password else {}))

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(sentence)
    assert "trout" not in result.stderr


def test_password_has_no_place_on_the_command_line(address: str, authority: Authority) -> None:
    assert bench(address, authority, "--user", "ops", "--password", "swordfish").returncode == 2


def test_missing_password_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoPassword, match="cannot be read"):
        password_for("ops", tmp_path / "none", {})


def test_percentiles_are_those_of_the_sorted_times() -> None:
    assert percentiles([]) == {}
    assert percentiles([0.001 * number for number in range(1, 101)]) == {
        "p50": 51.0,
        "p95": 96.0,
        "p99": 100.0,
        "max": 100.0,
    }
