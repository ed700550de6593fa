"""The RPC that tells callers who they are taken for."""

from __future__ import annotations

from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.authenticator import WRONG, Authenticator
from pulse_server.access.users import Role
from pulse_server.domain.errors import Unauthenticated
from pulse_server.transport.grpc.boundary import SERVICE
from pulse_server.transport.grpc.permissions import may_call

_METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["PulseService"].methods]


class Introduction:
    """Without an authenticator the server is open: nobody has a name, and everybody may do everything."""

    def __init__(self, authenticator: Authenticator | None) -> None:
        self._authenticator = authenticator

    async def who_am_i(
        self, _request: pb.WhoAmIRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.WhoAmIResponse:
        if self._authenticator is None:
            return _answer("", Role.ADMIN)
        metadata = dict(context.invocation_metadata() or ())
        # The doorkeeper has checked the password. None: the user was removed, or got another one, since then.
        user = self._authenticator.recognise(str(metadata.get("authorization", "")))
        if user is None:
            raise Unauthenticated(WRONG)
        return _answer(user.name, user.role)


def _answer(user: str, role: Role) -> pb.WhoAmIResponse:
    return pb.WhoAmIResponse(
        user=user,
        role=role.value,
        methods=[method for method in _METHODS if may_call(role, f"/{SERVICE}/{method}")],
    )
