"""Checks how the ports are protected: users, certificates, addresses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pulse_server.access.users import BadUsers, User, read_users_file
from pulse_server.base import tuning
from pulse_server.checks.findings import Finding, fail, info, ok, warn
from pulse_server.checks.listing import shown_users
from pulse_server.doors.addresses import PortInUse, probe
from pulse_server.settings import BadSettings, Settings, TlsFiles
from pulse_server.settings.options import is_loopback

# Below, a stolen hash is tried too quickly; above, a login keeps a core busy for a second and more.
_SANE_COSTS = range(10, 15)
_READ_BY_OTHERS = 0o004


def check_users(settings: Settings) -> Iterator[Finding]:
    if settings.is_open:
        yield from _open(settings)
        return
    users = settings.users
    if settings.users_file is not None:
        try:
            users = read_users_file(settings.users_file, "PULSE_AUTH_USERS_FILE")
        except BadUsers as error:  # since the settings were read
            yield fail("users", str(error))
            return
        yield from _kept_private(settings.users_file, "users", "PULSE_AUTH_USERS_FILE")
    yield ok("users", f"{shown_users(users)}.")
    yield from _secrets(users)
    if settings.tls is None and not is_loopback(settings.grpc_address):
        yield warn(
            "users",
            f"Passwords would cross the network in plain text to {settings.grpc_address}. "
            "Set PULSE_TLS_CERT and PULSE_TLS_KEY, unless something in front of pulsed speaks TLS.",
        )


def check_tls(settings: Settings) -> Iterator[Finding]:
    if settings.tls is None:
        yield info("tls", "Off.")
        return
    from pulse_server.doors.tls import FilesChanged, read_key_pair

    try:
        pair = read_key_pair(settings.tls)
    except BadSettings as error:
        yield from (fail("tls", problem) for problem in error.problems)
        return
    except FilesChanged:
        yield fail("tls", "The certificate is being written to at this moment. Check again.")
        return
    names = ", ".join(pair.names) or pair.subject or "no name"
    validity = f"The certificate is for {names} and expires on {pair.expires_at:%Y-%m-%d}"
    left = pair.expires_at - datetime.now(UTC)
    if left < tuning.CERTIFICATE_WARNING:
        yield warn("tls", f"{validity}, in {left.days} days. Renew it; a running pulsed picks it up.")
    else:
        yield ok("tls", f"{validity}. {_who_must_show_one(settings.tls)}")
    yield from _kept_private(settings.tls.key, "tls", "PULSE_TLS_KEY")


def check_addresses(settings: Settings) -> Iterator[Finding]:
    yield from _port(settings.grpc_address, "gRPC", "PULSE_GRPC_ADDR")
    if settings.http_address is None:
        yield info("ports", "HTTP is off: no health checks, no metrics. PULSE_HTTP_ADDR turns it on.")
    elif settings.http_address.startswith("unix:"):
        yield from _socket(Path(settings.http_address.removeprefix("unix:")))
    else:
        yield from _port(settings.http_address, "HTTP", "PULSE_HTTP_ADDR")


def _open(settings: Settings) -> Iterator[Finding]:
    if is_loopback(settings.grpc_address):
        yield info("users", "None: everyone on this machine may do everything. Set PULSE_AUTH_USERS.")
    elif settings.tls is not None and settings.tls.client_ca is not None:
        yield info("users", "None: every holder of a certificate of PULSE_TLS_CLIENT_CA may do everything.")
    else:
        yield warn(
            "users",
            f"None, and {settings.grpc_address} can be reached from elsewhere: everyone who can connect may "
            "do everything. Set PULSE_AUTH_USERS, or listen on 127.0.0.1.",
        )


def _secrets(users: tuple[User, ...]) -> Iterator[Finding]:
    if plain := [user.name for user in users if not user.has_hash]:
        yield warn(
            "users",
            f"Plain passwords: {', '.join(plain)}. Every reader of this configuration has them; "
            "use bcrypt hashes, which reveal nothing.",
        )
    odd = [user for user in users if user.has_hash and user.bcrypt_cost not in _SANE_COSTS]
    if odd:
        costs = ", ".join(f"{user.name} ({user.bcrypt_cost})" for user in odd)
        yield warn(
            "users",
            f"Unusual bcrypt costs: {costs}. Below {_SANE_COSTS[0]} a stolen hash is guessed quickly; above "
            f"{_SANE_COSTS[-1]} each login takes seconds. 12 is usual.",
        )


def _who_must_show_one(tls: TlsFiles) -> str:
    if tls.client_ca is None:
        return "Callers need none."
    return "Callers must show one of PULSE_TLS_CLIENT_CA."


def _kept_private(file: Path, subject: str, variable: str) -> Iterator[Finding]:
    try:
        mode = file.stat().st_mode
    except OSError:
        return  # reported by the check that reads it
    if mode & _READ_BY_OTHERS:
        yield warn(subject, f"{variable} ({file}) can be read by everyone on this machine: chmod o-r {file}")


def _port(address: str, name: str, variable: str) -> Iterator[Finding]:
    try:
        probe(address, variable)
    except PortInUse as error:
        yield fail("ports", str(error))
    else:
        yield ok("ports", f"{name} could listen on {address}.")


def _socket(path: Path) -> Iterator[Finding]:
    if os.access(path.parent, os.W_OK | os.X_OK):
        yield ok("ports", f"HTTP could listen on the socket {path}.")
    else:
        yield fail(
            "ports", f"PULSE_HTTP_ADDR: no socket can be made in {path.parent}. Make it, or name another."
        )
