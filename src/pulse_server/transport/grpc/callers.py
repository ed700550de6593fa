"""The caller of an RPC: its user, role and address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import grpc

from pulse_server.access.users import WRONG, Role
from pulse_server.base.errors import Unauthenticated
from pulse_server.transport.addresses import peer_address
from pulse_server.transport.grpc.worker_ids import calling_user

if TYPE_CHECKING:  # it imports bcrypt, which a server without users does not need
    from pulse_server.access.service import Authenticator

VISITOR = "pulse-visitor"
"""The metadata in which a dashboard sends the address of its visitor."""


@dataclass(frozen=True, slots=True)
class Caller:
    user: str
    """Empty on a server without users."""
    role: Role
    address: str


class Callers:
    """Without an authenticator the server is open: callers have no user and may call every method."""

    def __init__(self, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator

    @property
    def role(self) -> Role | None:
        """The role of the caller that this task serves; None on a server without users."""
        name = calling_user()
        return None if name is None or self._authenticator is None else self._authenticator.role_of(name)

    def of(self, context: grpc.aio.ServicerContext[Any, Any]) -> Caller:
        """Return the caller, which the interceptor has authenticated.

        Raises Unauthenticated if the user was removed or its password changed since then.
        """
        metadata = dict(context.invocation_metadata() or ())
        address = caller_address(context.peer(), metadata)
        if self._authenticator is None:
            return Caller("", Role.ADMIN, address)
        user = self._authenticator.recognize(str(metadata.get("authorization", "")))
        if user is None:
            raise Unauthenticated(WRONG)
        return Caller(user.name, user.role, address)


def caller_address(peer: str, metadata: Mapping[str, Any]) -> str:
    """Return the address of the caller. A dashboard also sends the address of its visitor.

    It calls as the visitor, not as a user of its own. So any caller could send one, and both are returned.
    """
    visitor = metadata.get(VISITOR, "")
    try:
        return f"{ip_address(visitor)} via {peer_address(peer)}" if visitor else peer_address(peer)
    except ValueError:
        return peer_address(peer)
