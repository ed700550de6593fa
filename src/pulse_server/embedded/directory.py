"""The directory that `pulsed` keeps its embedded database in, held by one process at a time.

<directory>/postgres/      the data directory of Postgres
<directory>/postgres.log   its log, with one predecessor
<directory>/lock           held with flock; contains the holder's pid and its socket directory
<directory>/socket/        the socket, while the server runs (see `sockets`)
"""

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from pulse_server.embedded.errors import DataDirectoryInUse, DataDirectoryUnusable, EmbeddedError
from pulse_server.embedded.identity import Identity
from pulse_server.embedded.sockets import make_socket_directory, remove_socket_directory, socket_places

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
