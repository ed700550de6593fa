"""The verb for access: who the caller is to the server."""

from __future__ import annotations

from datetime import timedelta

from pulse.client.caller import Caller
from pulse.models.identity import Identity, identity
from pulse.v1 import pulse_pb2 as pb


class AccessVerbs:
    """What a `Pulse` can learn about its own access."""

    _caller: Caller

    async def whoami(self, *, timeout: timedelta | None = None) -> Identity:
        """Return the user and the role that the server sees in this client."""
        return identity(await self._caller.call(lambda stub: stub.WhoAmI, pb.WhoAmIRequest(), timeout))
