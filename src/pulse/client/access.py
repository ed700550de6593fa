"""The verb for access: who the caller is to the server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.client.caller import Caller
from pulse.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


class AccessVerbs:
    """What a `Pulse` can learn about its own access."""

    _caller: Caller

    async def whoami(self, *, timeout: timedelta | None = None) -> Identity:
        """Return the user and the role that the server sees in this client."""
        return identity(await self._caller.call(lambda stub: stub.WhoAmI, pb.WhoAmIRequest(), timeout))


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller as the server sees it."""

    user: str | None
    """None if the server requires no login."""
    role: str
    """admin, operator, producer, worker or viewer."""
    methods: frozenset[str]
    """The RPCs that this role may call, such as RetryJobs."""

    def may(self, method: str) -> bool:
        """True if the role may call this RPC."""
        return method in self.methods


def identity(response: pb.WhoAmIResponse) -> Identity:
    """Return the identity in a message."""
    return Identity(response.user or None, response.role, frozenset(response.methods))
