"""Sends responses. Responses that callers have not read yet are bounded in bytes. ADR-0038

gRPC keeps a response until its caller reads it. A connection that reads nothing could make it keep
a thousand responses. Each response is therefore counted from the write until it has left.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from pulse_server.base import tuning
from pulse_server.base.errors import ResourceExhausted
from pulse_server.base.sharing import Budget

# Responses that wait to be read, of all callers and of one; gRPC has a copy of each. A small one is always
# sent.
UNREAD_BYTES = 64 * 1024 * 1024
UNREAD_BYTES_OF_ONE_CALLER = 40 * 1024 * 1024
SMALL_ANSWER_BYTES = 4 * 1024

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]

_UNREAD = (
    "The answer was not sent, because too many earlier answers have not been read. Read them and try again."
)
_TOO_LARGE = (
    f"This is done, but its answer has {{}} bytes, and a message may have {tuning.MAX_MESSAGE_BYTES}. "
    "Send or ask for less at a time."
)


class Responses:
    """The unread responses of all callers."""

    def __init__(self) -> None:
        self._unread = Budget(UNREAD_BYTES, of_one=UNREAD_BYTES_OF_ONE_CALLER, refusal=_UNREAD)

    def has_room(self, caller: str, data: bytes) -> bool:
        return len(data) <= SMALL_ANSWER_BYTES or self._unread.has_room(caller, len(data))

    async def send(self, data: bytes, caller: str, context: Context) -> None:
        """Return once the response has left. ResourceExhausted for a large one if too many are unread."""
        if len(data) > tuning.MAX_MESSAGE_BYTES:
            raise ResourceExhausted(_TOO_LARGE.format(len(data)))
        if len(data) <= SMALL_ANSWER_BYTES:
            await context.write(data)
            return
        with self._unread.taken(caller, len(data)):
            await context.write(data)

    async def respond(self, handler: Handler, requests: Any, caller: str, context: Context) -> None:
        """Call the handler with its request or requests, and send its response."""
        behavior: Any = (
            handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        )
        if inspect.isasyncgenfunction(behavior):
            async for response in behavior(requests, context):
                await context.write(response)
            return
        response = await behavior(requests, context)
        if not handler.response_streaming:
            serialize: Any = handler.response_serializer
            data = serialize(response)
            del response  # otherwise both it and its bytes stay in memory
            await self.send(data, caller, context)


def serialized_or_bytes(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """Return the serializer, which passes bytes through: they are a serialized response."""
    return lambda response: response if isinstance(response, bytes) else serialize(response)
