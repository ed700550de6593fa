"""Addresses: whether one is free to listen on, keeping it for several processes, and those of callers."""

from __future__ import annotations

import errno
import os
import socket
from types import TracebackType
from urllib.parse import unquote

_EVERYWHERE = frozenset({"", "::", "0.0.0.0"})
# localhost has two addresses, and the port that the first was given may be taken on the second.
_TRIES = 20


class PortInUse(Exception):
    """An address cannot be listened on. The sentence tells why, and which setting takes another one."""

    def __init__(self, address: str, variable: str = "PULSE_GRPC_ADDR", reason: str = "") -> None:
        why, what = (f"{reason}.", "address") if reason else ("is another pulsed there?", "port")
        super().__init__(f"Cannot listen on {address}: {why} {variable} takes another {what}.")


class ReservedAddress:
    """Sockets that are bound and never listen: they receive nothing, and keep others from the port."""

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
    """Keep the address for servers that listen on it with SO_REUSEPORT; PortInUse if it cannot be had.

    What it returns has the port that was really taken, if the choice was left to the system.
    """
    host, _, port = address.rpartition(":")
    if port != "0":
        # Binding with SO_REUSEPORT would succeed beside another pulsed that does so, and split its callers.
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
    """Return if a server could listen on the address now; PortInUse if not."""
    _close(_bind_all(address, variable, shared=False))


def listening_sockets(address: str, variable: str) -> list[socket.socket]:
    """Sockets that listen on the address, for one process alone; PortInUse if it cannot be had."""
    return _bind_all(address, variable, shared=False)


def _bind_all(address: str, variable: str, *, shared: bool) -> list[socket.socket]:
    """Bind what gRPC would listen on: each address of a name, and for "everywhere" both families at once."""
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
            # A family that this machine does not have; the other one will do.
            reason = os.strerror(error.errno or 0)
            continue
        port = bound[0].getsockname()[1]
        if place == "::":
            break
    if not bound:
        raise PortInUse(address, variable, reason)
    return bound


def _places(host: str, address: str, variable: str) -> list[tuple[socket.AddressFamily, str]]:
    if host in _EVERYWHERE:
        return [(socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise PortInUse(address, variable, "this machine does not know that host") from None
    return list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found))


def _bind(family: socket.AddressFamily, place: str, port: int, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        # What a connection of an earlier server left behind must not keep this one from the port.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and place == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((place, port))
        if shared:
            # Otherwise a stranger with SO_REUSEADDR could have the port whenever no process listens.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        else:
            made.listen(1)  # only now would somebody who is bound and does not listen be noticed
    except BaseException:
        made.close()
        raise
    return made


def _close(sockets: list[socket.socket]) -> None:
    for bound in sockets:
        bound.close()


def peer_address(peer: str) -> str:
    """The address in what gRPC calls a peer, such as ipv4:10.0.0.1:4711 or ipv6:%5B::1%5D:4711."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind  # everybody at a unix socket is on this machine
    return rest.rpartition(":")[0].strip("[]").partition("%")[0]
