"""The harness of the peers is ready, without any of them being installed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.peers import catalogue
from benchmarks.peers.environments import Installed, LeftOut, PythonEnvironment, ensure
from benchmarks.peers.peer import Shift
from benchmarks.peers.redis_store import require_redis
from tests.rows import each_row

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class FakeEnvironment(PythonEnvironment):
    """Installs nothing, and counts how often."""

    packages: Sequence[str] = ("fake",)
    installs: list[Path] = field(default_factory=list)

    def install(self, folder: Path) -> Installed:
        folder.mkdir()
        self.installs.append(folder)
        return Installed(Path(sys.executable), folder, {"fake": "1.0"})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_what_runs_in_a_foreign_environment_needs_the_standard_library_only() -> None:
    imports = "import benchmarks.peers.programs.load, benchmarks.peers.programs.recording"
    # Without `site` nothing that is installed can be imported.
    result = subprocess.run(
        [sys.executable, "-S", "-c", imports],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


@each_row("name", list(catalogue.PEERS))
@each_row("processes", [1, 2, 8])
def test_a_crew_says_with_which_settings_it_works(name: str, processes: int) -> None:
    for scenario in ("drain", "e2e", "idle"):
        crew = catalogue.PEERS[name].crew(Shift(scenario, processes, slots=20))
        assert crew.commands
        assert crew.settings


@each_row("processes", [1, 2, 8])
def test_workers_leave_connections_to_others(processes: int) -> None:
    assert Shift("e2e", processes, slots=80).connections * processes <= 80


def test_an_environment_is_installed_once(cache: Path) -> None:
    environment = FakeEnvironment()
    first = ensure("fake", environment)
    assert ensure("fake", environment) == first
    assert environment.installs == [cache / "pulse-bench" / "peers" / "fake"]


def test_an_environment_for_other_packages_is_made_anew() -> None:
    ensure("fake", FakeEnvironment())
    newer = FakeEnvironment(packages=("fake>=2",))
    ensure("fake", newer)
    assert len(newer.installs) == 1


def test_an_environment_of_another_python_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = FakeEnvironment()
    ensure("fake", environment)
    monkeypatch.setattr(sys, "_base_executable", "/usr/bin/another-python")
    ensure("fake", environment)
    assert len(environment.installs) == 2


def test_an_interrupted_installation_is_repeated(cache: Path) -> None:
    (cache / "pulse-bench" / "peers" / "fake").mkdir(parents=True)
    environment = FakeEnvironment()
    ensure("fake", environment)
    assert len(environment.installs) == 1


def test_without_redis_the_error_names_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LeftOut, match="apt-get install redis-server"):
        require_redis()


async def test_a_peer_that_cannot_run_is_left_out_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert await catalogue.prepare(["pg-boss", "celery"]) == []
    printed = capsys.readouterr().err
    assert "pg-boss is left out: npm is not on the PATH." in printed
    assert "celery is left out: redis-server is not on the PATH" in printed
