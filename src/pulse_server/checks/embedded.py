"""The Postgres that pulsed would start itself: its programs and its directory."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from pulse_server.checks.findings import Finding, fail, info, ok
from pulse_server.embedded import DataDirectoryInUse, DataDirectoryUnusable, EmbeddedError
from pulse_server.embedded.binaries import choose_installation, written_by_major
from pulse_server.embedded.directory import DataDirectory, open_own
from pulse_server.embedded.identity import choose_identity


def check_embedded(path: Path) -> Iterator[Finding]:
    """Creates and starts nothing."""
    directory = DataDirectory(path)
    try:
        identity = choose_identity(directory.path, directory.postgres)
        installation = choose_installation(directory.postgres, is_reachable=identity.can_reach)
        yield ok("database", f"Embedded PostgreSQL {installation.major}, from {installation.directory}.")
        _require_writable(directory.path)
        _require_free(directory.path)
    except EmbeddedError as error:
        yield fail("database", str(error))
        return
    if written_by_major(directory.postgres) is None:
        made = "would get" if directory.path.exists() else "would be made, with"
        yield info("database", f"{directory.path} {made} an empty database.")
    else:
        yield ok(
            "database", f"Its data is in {directory.path}; the schema is brought up to date at the start."
        )


def _require_writable(path: Path) -> None:
    existing = next(place for place in (path, *path.parents) if place.exists())
    if not existing.is_dir():
        raise DataDirectoryUnusable(path, f"{existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise DataDirectoryUnusable(path, f"{existing} cannot be written to")


def _require_free(path: Path) -> None:
    try:
        lock = open_own(path / "lock", os.O_RDONLY)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataDirectoryUnusable(path, f"{error.strerror} ({error.filename})") from None
        return
    try:
        # A shared lock, and for an instant: two checks at the same time do not disturb each other.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 64, 0).partition(b"\n")[0]
        raise DataDirectoryInUse(path, "another pulsed", int(holder) if holder.isdigit() else None) from None
    finally:
        os.close(lock)
