"""What a set-up installs: what is locked, or with a sentence other versions, never a file of another hash."""

import hashlib
import os
import re
import shutil
import site
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools import locks
from tools.declared import Profile

ROOT = Path(__file__).resolve().parents[2]

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "pulse-jobs"
version = "0"
dependencies = ["beacon>=1"]

[project.optional-dependencies]

[dependency-groups]
dev = []

[tool.hatch.build]
dev-mode-dirs = ["src"]
"""
INSTALL = """\
import os, sys
from tools.declared import Profile
from tools.environment import PYTHON, Problem
from tools.installing import install
try:
    install(Profile.RUN, PYTHON, os.open(os.devnull, os.O_RDONLY))
except Problem as problem:
    sys.exit(str(problem))
"""


@dataclass(frozen=True)
class Checkout:
    """A checkout with one dependency, of which the only index is a directory."""

    directory: Path
    wheels: Path

    def lock(self, version: str, digest: str, *, requirements: str | None = None) -> None:
        """Write the locks for one version and its hash, made for what the checkout declares, or for else."""
        script = "from tools import locks; print(locks.made_for())"
        made_for = requirements or self.python("-c", script).stdout
        (self.directory / "requirements").mkdir()
        for name, entry in {"run": f"beacon=={version} --hash=sha256:{digest}", "develop": ""}.items():
            (self.directory / "requirements" / f"{name}.lock").write_text(f"# {made_for}\n{entry}\n")

    def install(self) -> subprocess.CompletedProcess[str]:
        return self.python("-c", INSTALL)

    def installed(self) -> str:
        """Return which version is installed, nothing if none is."""
        script = "import importlib.metadata as m; print(*(d.version for d in m.distributions(name='beacon')))"
        return self.python("-c", script).stdout.strip()

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # No index, no uv, which would look for one, and the build backend that is installed here. Nor is it
        # asked whether all the packages of this environment fit together, which takes as long as the rest.
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        pip |= {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_WARN_CONFLICTS": "0"}  # pip's own sense of "no"
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        return subprocess.run(
            [self.directory / ".venv" / "bin" / "python", *arguments],
            cwd=self.directory,
            env=variables | pip | {"PIP_CONFIG_FILE": os.devnull, "PATH": str(self.wheels)},
            capture_output=True,
            text=True,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path / "checkout", tmp_path / "wheels")
    checkout.directory.mkdir()
    checkout.wheels.mkdir()
    (checkout.directory / "pyproject.toml").write_text(PYPROJECT)
    (checkout.directory / "src" / "pulse_jobs").mkdir(parents=True)
    (checkout.directory / "src" / "pulse_jobs" / "__init__.py").touch()
    shutil.copytree(ROOT / "tools", checkout.directory / "tools")
    environment = checkout.directory / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    # pip and the build backend of this environment: making others would take longer than all of the test.
    (packages / "this_environment.pth").write_text("\n".join(site.getsitepackages()))
    return checkout


def wheel(directory: Path, version: str) -> str:
    """Write a wheel of the dependency. Returns its hash."""
    path = directory / f"beacon-{version}-py3-none-any.whl"
    information = f"beacon-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("beacon.py", "")
        archive.writestr(f"{information}/METADATA", f"Name: beacon\nVersion: {version}\n")
        archive.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        archive.writestr(f"{information}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_locked_version_is_installed_though_there_is_a_newer_one(checkout: Checkout) -> None:
    checkout.lock("1.0", wheel(checkout.wheels, "1.0"))
    wheel(checkout.wheels, "2.0")
    result = checkout.install()
    assert (result.returncode, result.stdout, checkout.installed()) == (0, "", "1.0"), result.stderr


def test_file_of_another_hash_is_refused(checkout: Checkout) -> None:
    """Nor is another version taken instead: an attacker may have put that file there."""
    wheel(checkout.wheels, "1.0")
    checkout.lock("1.0", hashlib.sha256(b"what was there when it was locked").hexdigest())
    result = checkout.install()
    assert result.returncode == 1
    assert "do not trust it" in result.stderr
    assert checkout.installed() == ""


def test_lock_that_does_not_fit_gives_way_with_a_sentence(checkout: Checkout) -> None:
    """As on a machine for which the locked version has no wheel."""
    checkout.lock("1.5", "0" * 64)
    wheel(checkout.wheels, "2.0")
    result = checkout.install()
    assert (result.returncode, checkout.installed()) == (0, "2.0"), result.stderr
    assert "the locked versions do not install" in result.stdout


def test_lock_of_other_requirements_gives_way_with_a_sentence(checkout: Checkout) -> None:
    checkout.lock("1.0", wheel(checkout.wheels, "1.0"), requirements="Made for something else.")
    wheel(checkout.wheels, "2.0")
    result = checkout.install()
    assert (result.returncode, checkout.installed()) == (0, "2.0"), result.stderr
    assert "python3 dev.py lock" in result.stdout


def test_locks_are_of_this_pyproject() -> None:
    assert locks.are_current(), "run: python3 dev.py lock"


def test_every_requirement_is_locked() -> None:
    for profile in (Profile.RUN, Profile.DEVELOP):
        text = "\n".join(locks.text(lock) for lock in locks.locks_of(profile))
        locked = {entry.split("==")[0] for entry in locks.entries(text)}
        assert {requirement.name for requirement in locks.wanted(profile)} - locked == set()


def test_locks_hold_versions_and_hashes_and_nothing_else() -> None:
    """No address above all: where packages come from is for each machine to say."""
    entry = re.compile(r"[\w.-]+==[\w.]+( ; [^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+")
    for lock in locks.LOCKS:
        text = locks.text(lock)
        comments = [line for line in text.splitlines() if line.startswith("#")]
        found = [*locks.entries(text).values()]
        assert [held for held in found if not entry.fullmatch(held)] == []
        assert "\n".join([*comments, *found, ""]) == text
