"""Admits, reads and parses each request, and then calls its handler. ADR-0038

gRPC reads the request of a unary handler before it calls the handler; a stream handler is called first. So
each handler is registered as a stream handler. The wire format is the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from pulse_server.base.errors import PulseError, ResourceExhausted
from pulse_server.base.metrics import Metrics
from pulse_server.base.sharing import Budget
from pulse_server.transport.addresses import peer_address
from pulse_server.transport.grpc.anonymous import AnonymousRequests, AnonymousStreams
from pulse_server.transport.grpc.boundary import abort, freed_if_aborted, status_of
from pulse_server.transport.grpc.intake import Intake
from pulse_server.transport.grpc.parsing import Parser
from pulse_server.transport.grpc.permissions import PUBLIC, ROLES_THAT_MAY
from pulse_server.transport.grpc.responses import Responses, serialized_or_bytes
from pulse_server.transport.grpc.silent_connections import SilentConnections

# The memory of a call under way. The totals are for 5,000 calls of all callers, and 4,000 calls of
# one caller: a thousand workers of one user have up to four each. The request of a stream stays in
# memory as long as the stream, in about three copies.
CALL_BYTES = 32 * 1024
CALLS_BYTES = 5000 * CALL_BYTES
CALLS_BYTES_OF_ONE_CALLER = 4000 * CALL_BYTES
REQUEST_COPIES = 3

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]

_MANY_CALLS = "Too many calls are in progress. End some, or try again in a moment."


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """The interceptor of a server without users. With users, AuthenticationInterceptor calls it."""

    def __init__(self, metrics: Metrics, responses: Responses, connections: SilentConnections) -> None:
        self._metrics = metrics
        self._connections = connections
        self._responses = responses
        self._intake = Intake()
        self._calls = Budget(CALLS_BYTES, of_one=CALLS_BYTES_OF_ONE_CALLER, refusal=_MANY_CALLS)
        self._anonymous_requests = AnonymousRequests()
        self._anonymous_streams = AnonymousStreams()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(details)
        if handler is None:
            return None
        if details.method in PUBLIC:
            return as_stream_handler(handler, partial(self.serve_anonymous, handler))
        return self.admitted(handler, details.method, None)

    def admitted(self, handler: Handler, method: str, user: str | None) -> Handler:
        """Return the handler, which is called once its request was admitted and read."""
        return as_stream_handler(handler, partial(self.serve, handler, method, user))

    async def serve(
        self, handler: Handler, method: str, user: str | None, requests: Any, context: Context
    ) -> None:
        """Serve a call. It counts for the user, or else for its address."""
        peer = context.peer()
        self._connections.let_in(peer)
        caller = user or peer_address(peer)
        try:
            with self._calls.taken(caller, CALL_BYTES):
                await self._serve(handler, method, caller, requests, context)
        except PulseError as error:
            await self.refuse(method, error, context)

    async def _serve(
        self, handler: Handler, method: str, caller: str, requests: Any, context: Context
    ) -> None:
        if handler.request_streaming:
            await self._responses.respond(handler, requests, caller, context)
            return
        async with self._intake.request(context, caller, method, _parser(handler)) as unparsed:
            # The request of a stream stays in memory as long as the stream, parsed and as a message.
            kept = await unparsed.weigh() * REQUEST_COPIES if handler.response_streaming else 0
            request = await unparsed.parse()
            if not handler.response_streaming:
                await self._responses.respond(handler, request, caller, context)
        if handler.response_streaming:
            with self._calls.taken(caller, kept):
                await self._responses.respond(handler, request, caller, context)

    async def serve_anonymous(self, handler: Handler, _requests: Any, context: Context) -> None:
        """Serve a call without authentication."""
        with self._connections.anonymous_call(context.peer()):
            await self._serve_anonymous(handler, context)

    async def _serve_anonymous(self, handler: Handler, context: Context) -> None:
        request = await _parser(handler)(await self._anonymous_requests.read(context)).parse()
        address = peer_address(context.peer())
        if not handler.response_streaming:
            await self._responses.respond(handler, request, address, context)
            return
        try:
            with self._anonymous_streams.counted(address):
                await self._responses.respond(handler, request, address, context)
        except ResourceExhausted as error:
            await abort(context, status_of(error), str(error))

    async def refuse(self, method: str, error: PulseError, context: Context) -> NoReturn:
        code = status_of(error)
        # Callers can invent method names. A label for each would fill the memory.
        name = method.rpartition("/")[2] if method in ROLES_THAT_MAY else "(other)"
        self._metrics.rpcs.add(name, code.name)
        await abort(context, code, str(error))


def as_stream_handler(
    handler: Handler | None, behavior: Callable[[Any, Context], Awaitable[None]]
) -> Handler:
    """Return a stream handler that calls the behavior. A single request reaches it as bytes."""
    takes_messages = handler is not None and handler.request_streaming
    return grpc.stream_stream_rpc_method_handler(
        freed_if_aborted(behavior),
        request_deserializer=handler.request_deserializer if handler and takes_messages else None,
        response_serializer=handler.response_serializer and serialized_or_bytes(handler.response_serializer)
        if handler
        else None,
    )


def _parser(handler: Handler) -> Parser:
    parser: Any = handler.request_deserializer
    assert isinstance(parser, Parser), "all handlers have one"
    return parser
