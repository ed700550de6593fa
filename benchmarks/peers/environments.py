"""The environments that peers run in: made once, in a cache folder outside of the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from benchmarks.interpreters import inspect
from benchmarks.optimized import cache
from tools.environment import call

_INSTALL_LIMIT = timedelta(minutes=10)
_OLDEST_NODE = 22
_PRINT_VERSIONS = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""


class LeftOut(Exception):
    """Why a peer cannot run here, in words that end the sentence "X is left out: …"."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A ready environment: its interpreter, its folder, and the versions of its packages."""

    interpreter: Path
    folder: Path
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    packages: Sequence[str]
    oldest_python: tuple[int, int] = (3, 11)

    def install(self, folder: Path) -> Installed:
        interpreter = folder / "bin" / "python"
        _run([_python_from(self.oldest_python), "-m", "venv", folder])
        _run([interpreter, "-m", "pip", "install", "--quiet", *self.packages])
        names = [_bare_name(package) for package in self.packages]
        printed = _run([interpreter, "-c", _PRINT_VERSIONS, *names])
        python = inspect(interpreter)
        version = f"{python.version} {python.build.summary}" if python else "of unknown version"
        return Installed(interpreter, folder, {**json.loads(printed.splitlines()[-1]), "Python": version})

    def base(self) -> str:
        """Return the Python that it is made from."""
        return str(_python_from(self.oldest_python))


@dataclass(frozen=True, slots=True)
class NodeEnvironment:
    packages: Sequence[str]

    def install(self, folder: Path) -> Installed:
        if not shutil.which("npm"):
            raise LeftOut("npm is not on the PATH")
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}\n')
        # The package `node` brings the runtime: the runtime on the PATH may be too old for peers.
        wanted = [*self.packages, f"node@{_OLDEST_NODE}"]
        _run(["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *wanted])
        interpreter, version = _node_from(folder / "node_modules" / "node" / "bin" / "node")
        versions = {_bare_name(package): _node_version(folder, package) for package in self.packages}
        return Installed(interpreter, folder, {**versions, "Node": version})

    def base(self) -> str:
        return "npm"


def ensure(name: str, environment: PythonEnvironment | NodeEnvironment) -> Installed:
    """Return the environment of that name, created if it is missing, has other packages or another Python."""
    folder, wanted = cache() / "peers" / name, [environment.base(), *environment.packages]
    # Written last: a folder without it is left over from an interrupted run.
    record = folder / "installed.json"
    if record.exists():
        known = json.loads(record.read_text())
        interpreter = Path(known["interpreter"])
        if known.get("made_of") == wanted and interpreter.exists():
            return Installed(interpreter, folder, known["versions"])
    if folder.exists():
        shutil.rmtree(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"installing {name} …", file=sys.stderr, flush=True)
    installed = environment.install(folder)
    known = {
        "made_of": wanted,
        "interpreter": str(installed.interpreter),
        "versions": installed.versions,
    }
    record.write_text(json.dumps(known, indent=2) + "\n")
    return installed


def _run(command: Sequence[str | Path]) -> str:
    code, output = call(command, limit=_INSTALL_LIMIT)
    if code:
        last = output.strip().splitlines()[-1:] or ["no output"]
        raise LeftOut(f"{Path(command[0]).name} could not install it ({last[0]})")
    return output


def _python_from(oldest: tuple[int, int]) -> Path:
    """Return the Python that pulse runs on, for the sake of comparison; else the next newer one."""
    if sys.version_info >= oldest:
        return Path(getattr(sys, "_base_executable", None) or sys.executable)
    for candidate in _newer_pythons(oldest):
        # A version manager's shim is on the PATH for versions too that are not switched on.
        if call([candidate, "-c", "import ensurepip, venv"])[0] == 0:
            return candidate
    raise LeftOut(f"it needs Python {oldest[0]}.{oldest[1]} or newer, and none is on the PATH")


def _newer_pythons(oldest: tuple[int, int]) -> Iterator[Path]:
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for minor in range(oldest[1], oldest[1] + 5):
        if found := shutil.which(f"python{oldest[0]}.{minor}"):
            yield Path(found)
        yield from pyenv.glob(f"versions/{oldest[0]}.{minor}.*/bin/python")


def _node_from(packaged: Path) -> tuple[Path, str]:
    """Return a Node that is new enough, and its version. npm may have refused to unpack the packaged one."""
    for candidate in (packaged, Path(shutil.which("node") or "node")):
        code, output = call([candidate, "--version"])
        found = re.match(r"v(\d+)\.[\d.]+", output.strip())
        if code == 0 and found and int(found[1]) >= _OLDEST_NODE:
            return candidate, found[0].removeprefix("v")
    raise LeftOut(f"it needs Node {_OLDEST_NODE} or newer, and npm's package of it did not install")


def _node_version(folder: Path, package: str) -> str:
    manifest = folder / "node_modules" / _bare_name(package) / "package.json"
    return str(json.loads(manifest.read_text())["version"])


def _bare_name(package: str) -> str:
    return re.split(r"[\[<>=~@]", package, maxsplit=1)[0]
