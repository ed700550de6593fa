"""Ports that stay those of a test while its server is away.

While a server that is to come back at the same address does not listen, the system may give its port to
another process of the run. A socket that is bound and does not listen prevents that. A server that sets
SO_REUSEADDR, as gRPC and asyncio do, may listen on the port all the same.
"""

from __future__ import annotations

import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_address() -> Iterator[str]:
    """Reserve a port of this machine for the length of a block. Yields host:port."""
    with _bound() as held:
        yield f"127.0.0.1:{held.getsockname()[1]}"


def reserve_port(owner: object) -> int:
    """Reserve a port for as long as there is its owner."""
    held = _bound()
    weakref.finalize(owner, held.close)
    return int(held.getsockname()[1])


def _bound() -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held
