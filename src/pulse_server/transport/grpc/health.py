"""gRPC's health protocol and reflection, for load balancers and tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from pulse_server.doors.boundary import SERVICE, Parser, freed_if_aborted, require_readable

HEALTH = "grpc.health.v1.Health"

_SERVICES = frozenset({"", SERVICE})  # the server as a whole, and its one service
_Context = grpc.aio.ServicerContext[Any, Any]


class Health:
    """Reports SERVING while the server is ready. Watchers receive each change.

    Unlike the library's implementation it ends the streams of watchers at a shutdown: an open stream would
    delay the shutdown until the drain times out.
    """

    def __init__(self) -> None:
        self._is_serving = False
        self._has_ended = False
        self._changed = asyncio.Event()

    def set(self, is_serving: bool) -> None:
        self._is_serving = is_serving
        self._wake_watchers()

    def end(self) -> None:
        """Send NOT_SERVING to the watchers and end their streams."""
        self._has_ended = True
        self._is_serving = False
        self._wake_watchers()

    def handlers(self) -> grpc.GenericRpcHandler:
        read = Parser(health_pb2.HealthCheckRequest)
        write = health_pb2.HealthCheckResponse.SerializeToString
        return grpc.method_handlers_generic_handler(
            HEALTH,
            {
                "Check": grpc.unary_unary_rpc_method_handler(freed_if_aborted(self._check), read, write),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch, read, write),
            },
        )

    async def _check(
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> health_pb2.HealthCheckResponse:
        await require_readable(request, context)
        if request.service not in _SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service here.")
        return self._status(request.service)

    async def _watch(
        self, request: health_pb2.HealthCheckRequest, context: _Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        await require_readable(request, context)
        sent = None
        while True:
            changed = self._changed
            status = self._status(request.service)
            if status != sent:
                yield status
                sent = status
            if self._has_ended:
                return
            await changed.wait()

    def _status(self, service: str) -> health_pb2.HealthCheckResponse:
        status = health_pb2.HealthCheckResponse.NOT_SERVING
        if service not in _SERVICES:
            status = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        elif self._is_serving:
            status = health_pb2.HealthCheckResponse.SERVING
        return health_pb2.HealthCheckResponse(status=status)

    def _wake_watchers(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def add_reflection(server: grpc.aio.Server) -> None:
    """Add reflection, from which tools such as grpcurl read the contract."""
    library = reflection.aio.ReflectionServicer((SERVICE, HEALTH, reflection.SERVICE_NAME))

    async def readable(requests: AsyncIterator[Any], context: _Context) -> AsyncIterator[Any]:
        async for unparsed in requests:
            request = await unparsed.parse()
            await require_readable(request, context)
            yield request

    async def info(requests: AsyncIterator[Any], context: _Context) -> AsyncIterator[Any]:
        async for response in library.ServerReflectionInfo(readable(requests, context), context):
            yield response

    handler = grpc.stream_stream_rpc_method_handler(
        info,
        Parser(reflection_pb2.ServerReflectionRequest),
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(reflection.SERVICE_NAME, {"ServerReflectionInfo": handler}),)
    )
