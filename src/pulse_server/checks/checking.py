"""Runs the checks one after the other and prints their findings."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from pulse_server.checks.doors import check_addresses, check_tls, check_users
from pulse_server.checks.findings import Finding, Level, fail, info, ok, printed, verdict
from pulse_server.checks.listing import listed, unknown_variables
from pulse_server.embedded import DataDirectoryInUse, DataDirectoryUnusable, EmbeddedError
from pulse_server.embedded.directory import DataDirectory, choose_installation, open_own, written_by_major
from pulse_server.embedded.processes import choose_identity
from pulse_server.settings import BadSettings, Settings, read_settings

# ---------------------------------------------------------------- embedded
# The Postgres that pulsed would start itself: its programs and its directory.


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


# ---------------------------------------------------------------- checking


def check(environ: Mapping[str, str], flags: Mapping[str, str], *, migrates: bool) -> int:
    """Print the settings and their problems. Returns 0 if pulsed would start and serve, else 1.

    Changes nothing, neither on this machine nor in the database.
    """
    findings = list(unknown_variables(environ))
    settings: Settings | None = None
    try:
        settings = read_settings({**environ, **flags})
    except BadSettings as error:
        findings += [fail("settings", problem) for problem in error.problems]
    else:
        findings.append(ok("settings", "Each of them can be read."))
    print("settings:", listed(environ, flags, settings), "", "checks:", sep="\n")
    if settings is not None:
        findings += _of_what_they_mean(settings, migrates)
    findings.sort(key=lambda finding: finding.subject != "settings")
    print(printed(findings), "", verdict(findings), sep="\n")
    return int(any(finding.level is Level.FAIL for finding in findings))


def _of_what_they_mean(settings: Settings, migrates: bool) -> list[Finding]:
    return [
        *_guarded("users", lambda: check_users(settings)),
        *_guarded("tls", lambda: check_tls(settings)),
        *_guarded("ports", lambda: check_addresses(settings)),
        *_guarded("database", lambda: _of_the_database(settings, migrates)),
    ]


def _of_the_database(settings: Settings, migrates: bool) -> Iterable[Finding]:
    if settings.database_url is None:
        return check_embedded(settings.data_directory)
    from pulse_server.checks.database import check_database

    return asyncio.run(check_database(settings, settings.database_url, migrates=migrates))


def _guarded(subject: str, run: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of one check. A check that raises becomes a finding; later checks still run."""
    found: list[Finding] = []
    try:
        found.extend(run())
    except Exception as error:
        # Its type alone: its text may quote anything, a password included.
        found.append(
            fail(subject, f"This could not be checked ({type(error).__name__}), which is a bug in pulsed.")
        )
    return found
