"""The addresses of pulsed, with credentials and TLS. Validated when the client is created."""

from __future__ import annotations

import base64
import os
import re
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from pulse.errors import InvalidArgument
from pulse.wire.tls import ClientCertificate, File, Tls, make_tls

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 50051

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s,:/\[\]]*)(?::(?P<port>[0-9]+))?")
_EXPECTED = (
    "Write host, host:port or :port, for example localhost:50051, or several with commas between them, "
    "for example a.example.org,b.example.org:50061."
)


visitor: ContextVar[str] = ContextVar("pulse_visitor", default="")
"""The address of the visitor that a dashboard acts for. pulsed records it with the changes of the calls."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One pulsed, or several on one database, and the credentials for them."""

    address: str
    """As a user writes it: host:port, of several with commas between them."""
    target: str
    """As gRPC needs it. The first one of several."""
    is_local: bool
    metadata: tuple[tuple[str, str], ...] = field(repr=False)
    """Sent with every call."""
    authority: str
    """The server that calls name, as host:port. With TLS the certificate has to be for it."""
    tls: Tls | None = None
    """None for plain text."""
    servers: tuple[Endpoint, ...] = ()
    """Each of several, in the order of the address. Empty: there is one."""
    has_others: bool = False
    """True for one of several."""

    @property
    def call_metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a single call: with the visitor that this program acts for, if there is one."""
        address = visitor.get()
        return (*self.metadata, ("pulse-visitor", address)) if address else self.metadata

    @property
    def each(self) -> tuple[Endpoint, ...]:
        """The servers, one by one."""
        return self.servers or (self,)


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
    parsed = _parse_each(address, source)
    metadata = _credentials(user, password)
    each: list[Endpoint] = []
    for host, port in parsed:
        # The server listens on IPv4 by default; to dial ::1 first would cost a refused connection, or a
        # stall.
        dialed = "127.0.0.1" if host == "localhost" else host
        one = Endpoint(
            address=f"{host}:{port}",
            target=f"{dialed}:{port}",
            is_local=dialed == "[::1]" or dialed.startswith("127."),
            metadata=metadata,
            # As the user wrote it, not as it is dialed: a certificate for localhost is not one for 127.0.0.1.
            authority=f"{_bracketed(server_name)}:{port}" if server_name else f"{host}:{port}",
            tls=make_tls(host, tls, ca, cert, server_name),
            has_others=len(parsed) > 1,
        )
        each.append(one)
    if len(each) == 1:
        return each[0]
    return replace(each[0], address=",".join(one.address for one in each), servers=tuple(each))


def _parse_each(address: str, source: str) -> list[tuple[str, int]]:
    if not isinstance(address, str):
        raise InvalidArgument(f"{source} has to be a string, not {address!r}. {_EXPECTED}")
    parts = address.split(",")
    if len(parts) > 1 and not all(map(str.strip, parts)):
        raise InvalidArgument(f"{source} {address!r} has a comma without an address beside it. {_EXPECTED}")
    parsed = [_parse(part, source) for part in parts]
    if twice := [one for one in parsed if parsed.count(one) > 1]:
        host, port = twice[0]
        raise InvalidArgument(f"{source} {address!r} names {host}:{port} twice. Name each server once.")
    return parsed


def _parse(address: str, source: str) -> tuple[str, int]:
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
