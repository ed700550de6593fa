"""Where requests come in: each is admitted, read and parsed, and only then its handler is called.

gRPC reads the request of a unary handler before it calls it. A handler that takes a stream is called first,
so every handler is made one; on the wire there is no difference.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from pulse_server import tuning
from pulse_server.domain.errors import PulseError, ResourceExhausted
from pulse_server.telemetry.metrics import Metrics
from pulse_server.transport.addresses import peer_address
from pulse_server.transport.grpc.answers import Answers, serialized_or_bytes
from pulse_server.transport.grpc.boundary import abort, forgotten_if_aborted, status_of
from pulse_server.transport.grpc.budgets import Budget
from pulse_server.transport.grpc.intake import Intake
from pulse_server.transport.grpc.parsing import Parser
from pulse_server.transport.grpc.permissions import PUBLIC, ROLES_THAT_MAY
from pulse_server.transport.grpc.strangers import StrangersRequests, StrangersStreams

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]

_MANY_CALLS = "Too many calls are under way. End some, or try again in a moment."


class Entrance(grpc.aio.ServerInterceptor):
    """By itself the interceptor of a server without users; with users the doorkeeper stands before it."""

    def __init__(self, metrics: Metrics, answers: Answers | None = None) -> None:
        self._metrics = metrics
        self._answers = answers or Answers()
        self._intake = Intake()
        self._calls = Budget(tuning.CALLS_BYTES, of_one=tuning.CALLS_BYTES_OF_ONE_CALLER, refusal=_MANY_CALLS)
        self._strangers = StrangersRequests()
        self._strangers_streams = StrangersStreams()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(details)
        if handler is None:
            return None
        if details.method in PUBLIC:
            return taking_a_stream(handler, partial(self.answer_anybody, handler))
        return self.admitting(handler, details.method, None)

    def admitting(self, handler: Handler, method: str, user: str | None) -> Handler:
        """The handler, called once its request was admitted and read."""
        return taking_a_stream(handler, partial(self.serve, handler, method, user))

    async def serve(
        self, handler: Handler, method: str, user: str | None, requests: Any, context: Context
    ) -> None:
        """Answer a call of the user, or else of its address."""
        caller = user or peer_address(context.peer())
        try:
            with self._calls.taken(caller, tuning.CALL_BYTES):
                await self._serve(handler, method, caller, requests, context)
        except PulseError as error:
            await self.refuse(method, error, context)

    async def _serve(
        self, handler: Handler, method: str, caller: str, requests: Any, context: Context
    ) -> None:
        if handler.request_streaming:
            await self._answers.respond(handler, requests, caller, context)
            return
        async with self._intake.request(context, caller, method) as box:
            # What a stream asks for stays in memory for as long as it lasts, taken apart and as a message.
            kept = len(box[0]) * tuning.REQUEST_COPIES if handler.response_streaming else 0
            request = await _parsed(handler, box)
            if not handler.response_streaming:
                await self._answers.respond(handler, request, caller, context)
        if handler.response_streaming:
            with self._calls.taken(caller, kept):
                await self._answers.respond(handler, request, caller, context)

    async def answer_anybody(self, handler: Handler, _requests: Any, context: Context) -> None:
        """Answer a call of a caller of whom nothing is known."""
        request = await _parsed(handler, [await self._strangers.read(context)])
        address = peer_address(context.peer())
        if not handler.response_streaming:
            await self._answers.respond(handler, request, address, context)
            return
        try:
            with self._strangers_streams.entered(address):
                await self._answers.respond(handler, request, address, context)
        except ResourceExhausted as error:
            await abort(context, status_of(error), str(error))

    async def refuse(self, method: str, error: PulseError, context: Context) -> NoReturn:
        code = status_of(error)
        # Anybody can make up methods; each as a label of its own would fill the memory.
        name = method.rpartition("/")[2] if method in ROLES_THAT_MAY else "(other)"
        self._metrics.rpcs.add(name, code.name)
        await abort(context, code, str(error))


def taking_a_stream(handler: Handler | None, behaviour: Callable[[Any, Context], Awaitable[None]]) -> Handler:
    """A handler that takes its requests as they come, or one request as the bytes that it has."""
    takes_messages = handler is not None and handler.request_streaming
    return grpc.stream_stream_rpc_method_handler(
        forgotten_if_aborted(behaviour),
        request_deserializer=handler.request_deserializer if handler and takes_messages else None,
        response_serializer=handler.response_serializer and serialized_or_bytes(handler.response_serializer)
        if handler
        else None,
    )


async def _parsed(handler: Handler, box: list[bytes]) -> Any:
    """The message of the bytes, which are let go."""
    parse: Any = handler.request_deserializer
    return await parse.in_turns(box) if isinstance(parse, Parser) else parse(box.pop())
