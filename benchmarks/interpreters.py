"""Which Python something runs on, and whether that was built with profile-guided and link-time optimization.

The difference is a sixth of the CPU time of a server or a worker, so a figure without it means little.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROBE = """
import json, os, platform, sys, sysconfig
names = ("CONFIG_ARGS", "CFLAGS", "PY_CFLAGS", "PY_CORE_CFLAGS", "PY_CFLAGS_NODIST", "PY_LDFLAGS_NODIST")
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({
    "path": os.path.realpath(base),
    "version": platform.python_version(),
    "implementation": platform.python_implementation(),
    "architecture": platform.machine(),
    "build": {name: sysconfig.get_config_var(name) or "" for name in names},
}))
"""
_PROBE_SECONDS = 20
_OLDEST = (3, 11)
_NEWEST_MINOR = 20
# Debian and Ubuntu build with PGO and LTO on these, and remove both from what sysconfig reports: extensions
# would inherit the flags (debian/rules of the package: with_pgo, with_lto, sysconfig_substflags).
_OPTIMIZED_IN_DEBIAN = frozenset({"x86_64", "aarch64", "armv7l", "i386", "i686", "ppc64le", "s390x"})


@dataclass(frozen=True, slots=True)
class Build:
    """How an interpreter was compiled, and how that is known. None: unknown."""

    has_pgo: bool | None
    has_lto: bool | None
    evidence: str

    def __str__(self) -> str:
        if self.has_pgo is None or self.has_lto is None:
            return f"build unknown: {self.evidence}"
        words = {
            (True, True): "PGO and LTO",
            (True, False): "PGO, no LTO",
            (False, True): "LTO, no PGO",
            (False, False): "no PGO, no LTO",
        }
        return f"{words[self.has_pgo, self.has_lto]}, by {self.evidence}"

    @property
    def summary(self) -> str:
        """The same in few words."""
        if self.has_pgo is None:
            return "of unknown build"
        return "with PGO" if self.has_pgo else "without PGO"


@dataclass(frozen=True, slots=True)
class Interpreter:
    path: Path
    """The installation's program, also when a virtual environment's program was inspected."""
    version: str
    build: Build

    @property
    def is_optimized(self) -> bool:
        return self.build.has_pgo is True

    def __str__(self) -> str:
        return f"{self.version} ({self.build})"


def inspect(program: Path | str) -> Interpreter | None:
    """Describe the interpreter if the program is a Python that pulse runs on, else None."""
    try:
        result = subprocess.run(
            [program, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        )
        found = json.loads(result.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if tuple(int(number) for number in re.findall(r"\d+", found["version"])[:2]) < _OLDEST:
        return None
    if found["implementation"] != "CPython":
        build = Build(None, None, f"it is {found['implementation']}")
    else:
        build = judge(found["build"], found["architecture"], _debian_package(found["path"]))
    return Interpreter(Path(found["path"]), found["version"], build)


def judge(variables: dict[str, str], architecture: str, debian_package: str | None) -> Build:
    """Return the build that the variables of sysconfig and the origin of an interpreter show.

    A build in which neither shows is taken for a plain one only if its own configure options are there and
    its packagers are not known to remove the flags.
    """
    configured, flags = variables.get("CONFIG_ARGS", ""), " ".join(variables.values())
    has_pgo = "--enable-optimizations" in configured or bool(re.search(r"-fprofile-(instr-)?use", flags))
    has_lto = bool(re.search(r"--with-lto(?!=no\b)", configured)) or "-flto" in flags
    if debian_package:
        if architecture in _OPTIMIZED_IN_DEBIAN:
            return Build(True, True, f"the rules of Debian's {debian_package}")
        return Build(None, None, f"Debian's {debian_package} on {architecture} may have neither")
    if has_pgo or has_lto:
        return Build(has_pgo, has_lto, "its configure options")
    if not configured or "'--prefix=/usr'" in configured:
        return Build(None, None, "its packagers may have removed the flags from sysconfig")
    return Build(False, False, "its configure options")


def find_optimized() -> Interpreter | None:
    """Return a Python of this machine that was built with PGO: of our own minor version, else a newer one."""
    own = sys.version_info[1]
    newer = range(own + 1, _NEWEST_MINOR)
    older = range(own - 1, _OLDEST[1] - 1, -1)
    for minor in (own, *newer, *older):
        for candidate in _installed(minor):
            found = inspect(candidate)
            if found and found.is_optimized:
                return found
    return None


def _installed(minor: int) -> Iterator[Path]:
    name = f"python{_OLDEST[0]}.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = [Path("/usr/bin"), Path("/usr/local/bin"), Path("/opt/homebrew/bin")]
    yield from (folder / name for folder in folders if (folder / name).exists())
    if found := shutil.which(name):
        yield Path(found)
    yield from pyenv.glob(f"versions/{_OLDEST[0]}.{minor}.*/bin/python")
    yield from (Path.home() / ".local/share/uv/python").glob(f"cpython-{_OLDEST[0]}.{minor}.*/bin/python")


def _debian_package(path: str) -> str | None:
    """Return the package that dpkg has installed a program from, if any."""
    try:
        result = subprocess.run(
            ["dpkg", "-S", path], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.partition(":")[0].strip() or None
