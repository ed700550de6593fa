"""The caller of an RPC: its user, role and address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc

from pulse_server.access.authenticator import WRONG, Authenticator
from pulse_server.access.users import Role, User
from pulse_server.domain.errors import Unauthenticated
from pulse_server.transport.addresses import peer_address


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

    def of(self, context: grpc.aio.ServicerContext[Any, Any]) -> Caller:
        """Return the caller, which the interceptor has authenticated.

        Raises Unauthenticated if the user was removed or its password changed since then.
        """
        address = peer_address(context.peer())
        if self._authenticator is None:
            return Caller("", Role.ADMIN, address)
        user = self._user(self._authenticator, context)
        return Caller(user.name, user.role, address)

    def _user(self, authenticator: Authenticator, context: grpc.aio.ServicerContext[Any, Any]) -> User:
        metadata = dict(context.invocation_metadata() or ())
        user = authenticator.recognize(str(metadata.get("authorization", "")))
        if user is None:
            raise Unauthenticated(WRONG)
        return user
