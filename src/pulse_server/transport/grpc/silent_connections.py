"""Closes connections on which no caller was let in. ADR-0038

A connection without calls that answers the pings of the server keeps a file descriptor. gRPC closes it after
CONNECTION_IDLE, for which clients that were let in may be silent. gRPC does not report connections to Python,
so this module finds them among the sockets of the process, and shuts them down. gRPC then closes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from pulse_server.base.loops import Loop, lease_clock

# Time until a user's first call, or on a server without users any first call. A health check
# restarts it.
FIRST_CALL = timedelta(seconds=30)
# Connections without such a call, per address. Beyond it the oldest are closed.
SILENT_PER_ADDRESS = 100
LOOK = timedelta(seconds=5)
_DESCRIPTORS = Path("/dev/fd")  # on Linux and macOS

log = logging.getLogger(__name__)


class Peer(NamedTuple):
    host: str
    port: int


class SilentConnections:
    def __init__(self, clock: Callable[[], float] = lease_clock) -> None:
        self.port = 0
        """The server's port; 0: not listening yet."""
        self._clock = clock
        # Peers as gRPC names them: a call adds its name and does no other work.
        self._let_in: set[str] = set()
        self._checked: dict[str, float] = {}
        self._watching: Counter[str] = Counter()
        self._first_seen: dict[Peer, float] = {}
        self.loop = Loop("silent connections", self.close, LOOK)

    def let_in(self, peer: str) -> None:
        """A caller on this connection was let in."""
        self._let_in.add(peer)

    @contextmanager
    def anonymous_call(self, peer: str) -> Iterator[None]:
        """Count a call without a user, such as a health check. While it runs the connection is not silent."""
        self._watching[peer] += 1
        try:
            yield
        finally:
            self._watching[peer] -= 1
            if not self._watching[peer]:
                del self._watching[peer]
            self._checked[peer] = self._clock()

    async def close(self) -> None:
        """Close the connections that have been silent for too long, or are too many of one address."""
        if not self.port:
            return
        known = self._let_in | self._checked.keys()
        sockets = await asyncio.to_thread(_connections, self.port)
        try:
            self._forget(name for name in known if _peer(name) not in sockets)
            self._first_seen = {peer: at for peer, at in self._first_seen.items() if peer in sockets}
            silent = self._silent(sockets)
            for peer in silent:
                with contextlib.suppress(OSError):  # the client has closed it
                    sockets[peer].shutdown(socket.SHUT_RDWR)
            if silent:
                hosts = Counter(peer.host for peer in silent)
                log.warning(
                    "silent_connections_closed",
                    extra={"count": len(silent), "address": hosts.most_common(1)[0][0]},
                )
        finally:
            for own in sockets.values():
                own.close()

    def _silent(self, sockets: Mapping[Peer, object]) -> list[Peer]:
        now = self._clock()
        let_in = {_peer(name) for name in (*self._let_in, *self._watching)}
        checked = {_peer(name): at for name, at in self._checked.items()}
        ages: dict[str, list[tuple[float, Peer]]] = defaultdict(list)
        for peer in sockets.keys() - let_in:
            since = max(self._first_seen.setdefault(peer, now), checked.get(peer, 0.0))
            ages[peer.host].append((now - since, peer))
        longest = FIRST_CALL.total_seconds()
        return [
            peer
            for of_address in ages.values()
            for place, (age, peer) in enumerate(sorted(of_address))
            if age > longest or place >= SILENT_PER_ADDRESS
        ]

    def _forget(self, ended: Iterable[str]) -> None:
        """Forget connections that have ended: another one may get their port.

        Connections let in during the look stay: the look may have missed them.
        """
        for name in ended:
            self._let_in.discard(name)
            self._checked.pop(name, None)


def _connections(port: int) -> dict[Peer, socket.socket]:
    """Return the connections that were made to the port of this process, as sockets of our own."""
    found: dict[Peer, socket.socket] = {}
    try:
        descriptors = [int(file.name) for file in _DESCRIPTORS.iterdir()]
    except OSError:
        return found
    for descriptor in descriptors:
        try:
            # A copy: the descriptor may be closed, and its number reused, during the look.
            copy = os.dup(descriptor)
        except OSError:
            continue
        try:
            own = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        try:
            if own.family in (socket.AF_INET, socket.AF_INET6) and own.getsockname()[1] == port:
                host, its_port = own.getpeername()[:2]
                found[Peer(_host(host), its_port)] = own
                continue
        except OSError:  # it listens, or is closed
            pass
        own.close()
    return found


@lru_cache(maxsize=10_000)
def _peer(name: str) -> Peer:
    """Read what gRPC calls a peer: ipv4:127.0.0.1:5000, or ipv6:%5B::1%5D:5000."""
    host, _, port = unquote(name).partition(":")[2].rpartition(":")
    return Peer(_host(host.strip("[]")), int(port) if port.isdigit() else 0)


def _host(text: str) -> str:
    """Return the address. A socket of both families names IPv4 addresses as IPv6."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    return str(getattr(address, "ipv4_mapped", None) or address)
