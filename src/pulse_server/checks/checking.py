"""Runs the checks one after the other and prints their findings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from pulse_server.checks.doors import check_addresses, check_tls, check_users
from pulse_server.checks.embedded import check_embedded
from pulse_server.checks.findings import Finding, Level, fail, ok, printed, verdict
from pulse_server.checks.listing import listed, unknown_variables
from pulse_server.settings import BadSettings, Settings, read_settings


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
