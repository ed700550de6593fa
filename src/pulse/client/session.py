"""The connection of a client in one event loop. gRPC channels cannot move to another loop or process."""

from __future__ import annotations

import asyncio
import os

from pulse.client.awaiting import Awaiting
from pulse.client.submitter import Submitter
from pulse.errors import ClientClosed
from pulse.wire.channels import refuse_forked_child
from pulse.wire.connection import Connection
from pulse.wire.endpoint import Endpoint


class Session:
    """A connection, its submitter and its waits, bound to the event loop that opened them."""

    def __init__(self, endpoint: Endpoint, before: Session | None) -> None:
        self.loop = asyncio.get_running_loop()
        self._process = os.getpid()
        # Kept alive: in a forked child, collecting the parent's channel could wait for threads that only the
        # parent has.
        self._of_parent = before if before is not None and before._process != self._process else None
        self.connection = Connection(endpoint)
        self.submitter = Submitter(self.connection)
        self.awaiting = Awaiting(self.connection)

    def is_here(self) -> bool:
        """True in the event loop of the session. In a forked child that loop does not run."""
        return self.loop is asyncio._get_running_loop()

    def is_abandoned(self) -> bool:
        """True when the session can no longer be used."""
        return self.loop.is_closed() or self._process != os.getpid()

    async def close(self) -> None:
        """Fail jobs that were not sent, and open waits, and close the connection."""
        await self.submitter.close()
        await self.awaiting.close()
        await self.connection.close()


def open_session(endpoint: Endpoint, before: Session | None) -> Session:
    """Return a session for the running event loop.

    Raises ClientClosed while another loop uses the client, and in a child that was forked after gRPC was
    used.
    """
    # First: a child that was forked in a running loop has none, and asyncio's error does not say why.
    refuse_forked_child()
    if before is not None and not before.is_abandoned():
        raise ClientClosed(
            "This client is in use by another event loop that is still alive. "
            "Make one Pulse for each event loop, or use SyncPulse from threads."
        )
    return Session(endpoint, before)
