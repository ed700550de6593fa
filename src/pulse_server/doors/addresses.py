"""Addresses: test and reserve listen addresses, and read the addresses of callers.

And the authentication that the settings ask for, with the log of how the ports are protected.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from types import TracebackType
from urllib.parse import unquote

from pulse_server.access.service import Access
from pulse_server.access.users import BadUsers
from pulse_server.base.metrics import Metrics
from pulse_server.settings import BadSettings, Settings
from pulse_server.settings.options import is_loopback

_WILDCARDS = frozenset({"", "::", "0.0.0.0"})
# localhost has two addresses: the port chosen for the first may be in use on the second.
_TRIES = 20


class PortInUse(Exception):
    """The server cannot listen on an address. The sentence has the reason and the setting."""

    def __init__(self, address: str, variable: str = "PULSE_GRPC_ADDR", reason: str = "") -> None:
        why, what = (f"{reason}.", "address") if reason else ("is another pulsed there?", "port")
        super().__init__(f"Cannot listen on {address}: {why} {variable} takes another {what}.")


class ReservedAddress:
    """Sockets that are bound and never listen: they receive nothing and reserve the port."""

    def __init__(self, address: str, sockets: list[socket.socket]) -> None:
        self.address = address
        self._sockets = sockets

    def __enter__(self) -> ReservedAddress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _close(self._sockets)


def reserve(address: str, variable: str = "PULSE_GRPC_ADDR") -> ReservedAddress:
    """Reserve the address for servers that listen with SO_REUSEPORT. Raises PortInUse.

    The result has the actual port, if the address has port 0.
    """
    host, _, port = address.rpartition(":")
    if port != "0":
        # Binding with SO_REUSEPORT would succeed beside another pulsed that uses it, and split its callers.
        probe(address, variable)
        return ReservedAddress(address, _bind_all(address, variable, shared=True))
    for remaining in reversed(range(_TRIES)):
        try:
            sockets = _bind_all(address, variable, shared=True)
        except PortInUse:
            if not remaining:
                raise
        else:
            return ReservedAddress(f"{host}:{sockets[0].getsockname()[1]}", sockets)
    raise AssertionError("the last try returns or raises")


def probe(address: str, variable: str = "PULSE_GRPC_ADDR") -> None:
    """Check that a server could listen on the address. Raises PortInUse if not."""
    _close(_bind_all(address, variable, shared=False))


def listening_sockets(address: str, variable: str) -> list[socket.socket]:
    """Return sockets that listen on the address, for one process. Raises PortInUse."""
    return _bind_all(address, variable, shared=False)


def _bind_all(address: str, variable: str, *, shared: bool) -> list[socket.socket]:
    """Bind the same addresses as gRPC: each address of a host; for the wildcard both families."""
    host, _, text = address.rpartition(":")
    port, reason = int(text), ""
    bound: list[socket.socket] = []
    for family, place in _places(host.strip("[]"), address, variable):
        try:
            bound.append(_bind(family, place, port, shared))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                _close(bound)
                raise PortInUse(address, variable) from None
            # An address family that this machine does not have; the other one is enough.
            reason = os.strerror(error.errno or 0)
            continue
        port = bound[0].getsockname()[1]
        if place == "::":
            break
    if not bound:
        raise PortInUse(address, variable, reason)
    return bound


def _places(host: str, address: str, variable: str) -> list[tuple[socket.AddressFamily, str]]:
    if host in _WILDCARDS:
        return [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise PortInUse(address, variable, "this machine does not know that host") from None
    return list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found))


def _bind(family: socket.AddressFamily, place: str, port: int, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier server in TIME_WAIT must not block the port.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and place == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((place, port))
        if shared:
            # Otherwise another program with SO_REUSEADDR could take the port while no process listens.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        else:
            made.listen(1)  # detects another socket that is bound and does not listen
    except BaseException:
        made.close()
        raise
    return made


def _close(sockets: list[socket.socket]) -> None:
    for bound in sockets:
        bound.close()


def peer_address(peer: str) -> str:
    """Return the address of a gRPC peer, such as ipv4:10.0.0.1:4711 or ipv6:%5B::1%5D:4711."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind  # callers at a Unix socket are all on this machine
    return rest.rpartition(":")[0].strip("[]").partition("%")[0]


log = logging.getLogger(__name__)


def access_of(settings: Settings, metrics: Metrics) -> Access | None:
    """The authentication; None if every caller is accepted."""
    if settings.is_open:
        return None
    try:
        return Access(settings.users, settings.users_file, metrics)
    except BadUsers as error:  # the file was changed since the settings were read
        raise BadSettings(str(error)) from None


def doors(settings: Settings) -> dict[str, str]:
    """How the ports of a server are protected, as fields of its first event."""
    tls = "off"
    if settings.tls is not None:
        tls = "mutual" if settings.tls.client_ca is not None else "on"
    return {"auth": "open" if settings.is_open else "users", "tls": tls}


def warn_of_open_doors(settings: Settings) -> None:
    """Log unprotected ports, unless only this machine can reach the server."""
    if is_loopback(settings.grpc_address):
        return
    address = {"address": settings.grpc_address}
    if settings.is_open and (settings.tls is None or settings.tls.client_ca is None):
        hint = "Set PULSE_AUTH_USERS, or listen on 127.0.0.1."
        log.warning("open_to_everyone_who_can_connect", extra=address | {"hint": hint})
    if not settings.is_open and settings.tls is None:
        hint = "Set PULSE_TLS_CERT and PULSE_TLS_KEY: passwords cross the network for everyone on it to read."
        log.warning("credentials_in_plain_text", extra=address | {"hint": hint})
