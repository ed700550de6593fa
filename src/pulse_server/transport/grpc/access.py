"""The RPC of access: WhoAmI."""

from __future__ import annotations

from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.transport.grpc.boundary import SERVICE
from pulse_server.transport.grpc.callers import Callers
from pulse_server.transport.grpc.permissions import may_call

_METHODS = [method.name for method in pb.DESCRIPTOR.services_by_name["PulseService"].methods]


class AccessRpcs:
    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def who_am_i(
        self, _request: pb.WhoAmIRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.WhoAmIResponse:
        caller = self._callers.of(context)
        return pb.WhoAmIResponse(
            user=caller.user,
            role=caller.role.value,
            methods=[method for method in _METHODS if may_call(caller.role, f"/{SERVICE}/{method}")],
        )
