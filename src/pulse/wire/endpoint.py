"""The address of pulsed, with credentials and TLS. Validated when the client is created."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass, field

from pulse.errors import InvalidArgument
from pulse.wire.tls import ClientCertificate, File, Tls, make_tls

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 50051

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]*)(?::(?P<port>[0-9]+))?")
_EXPECTED = "Write host, host:port or :port, for example localhost:50051."


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One pulsed, and the credentials for it."""

    address: str
    """As a user writes it: host:port."""
    target: str
    """As gRPC needs it."""
    is_local: bool
    metadata: tuple[tuple[str, str], ...] = field(repr=False)
    """Sent with every call."""
    authority: str
    """The server that calls name, as host:port. With TLS the certificate has to be for it."""
    tls: Tls | None = None
    """None for plain text."""


def make_endpoint(
    address: str | None,
    user: str | None,
    password: str | None,
    *,
    tls: bool | None = None,
    ca: File | None = None,
    cert: ClientCertificate | None = None,
    server_name: str | None = None,
) -> Endpoint:
    """Return where and how to connect. The environment has the defaults.

    The variables are PULSE_ADDR, PULSE_USER and PULSE_PASSWORD; `make_tls` has the variables of
    TLS.
    """
    source = "The address"
    if address is None:
        source, address = "PULSE_ADDR", os.environ.get("PULSE_ADDR", "")
    host, port = _parse(address, source)
    # The server listens on IPv4 by default; to dial ::1 first would cost a refused connection, or a stall.
    dialed = "127.0.0.1" if host == "localhost" else host
    security = make_tls(host, tls, ca, cert, server_name)
    return Endpoint(
        address=f"{host}:{port}",
        target=f"{dialed}:{port}",
        is_local=dialed == "[::1]" or dialed.startswith("127."),
        metadata=_credentials(user, password),
        # As the user wrote it, not as it is dialed: a certificate for localhost is not one for 127.0.0.1.
        authority=f"{_bracketed(server_name)}:{port}" if server_name else f"{host}:{port}",
        tls=security,
    )


def _parse(address: str, source: str) -> tuple[str, int]:
    if not isinstance(address, str):
        raise InvalidArgument(f"{source} has to be a string, not {address!r}. {_EXPECTED}")
    found = _ADDRESS.fullmatch(address.strip())
    if found is None:
        raise InvalidArgument(f"{source} {address!r} cannot be understood. {_EXPECTED}")
    port = int(found["port"] or DEFAULT_PORT)
    if not 1 <= port <= 65535:
        raise InvalidArgument(f"{source} {address!r} has a port outside of 1 to 65535. {_EXPECTED}")
    return found["host"] or DEFAULT_HOST, port


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _credentials(user: str | None, password: str | None) -> tuple[tuple[str, str], ...]:
    # Both from the same source: a user given in code must not be combined with a password of the environment.
    if user is None and password is None:
        user, password = os.environ.get("PULSE_USER"), os.environ.get("PULSE_PASSWORD")
    if not user and not password:
        return ()
    if not user or not password:
        missing = "user (PULSE_USER)" if not user else "password (PULSE_PASSWORD)"
        raise InvalidArgument(f"The {missing} is missing: give both user and password, or neither.")
    if ":" in user:
        raise InvalidArgument(f"The user {user!r} contains a colon, which Basic credentials cannot carry.")
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return (("authorization", f"Basic {token}"),)
