"""Sends answers. Those that their callers have not taken yet are bounded in bytes. ADR-0038

gRPC keeps an answer until its caller takes it, however long that is: a connection that reads nothing could
have a thousand of them wait. So what is given to gRPC is counted until it has left.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import grpc

from pulse_server import tuning
from pulse_server.transport.grpc.budgets import Budget

Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]

_UNREAD = (
    "The answer was not sent, because too many answers before it wait to be read. Read them, and ask again."
)


class Answers:
    """The answers that wait to be taken, of all callers."""

    def __init__(self) -> None:
        self._unread = Budget(tuning.UNREAD_BYTES, of_one=tuning.UNREAD_BYTES_OF_ONE_CALLER, refusal=_UNREAD)

    def has_room(self, caller: str, data: bytes) -> bool:
        return len(data) <= tuning.SMALL_ANSWER_BYTES or self._unread.has_room(caller, len(data))

    async def send(self, data: bytes, caller: str, context: Context) -> None:
        """Return once the answer has left. ResourceExhausted if there is no room for it; a small one has."""
        if len(data) <= tuning.SMALL_ANSWER_BYTES:
            await context.write(data)
            return
        with self._unread.taken(caller, len(data)):
            await context.write(data)

    async def respond(self, handler: Handler, requests: Any, caller: str, context: Context) -> None:
        """Call the behaviour with its request, or its requests, and send what it answers."""
        behaviour: Any = (
            handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
        )
        if inspect.isasyncgenfunction(behaviour):
            async for response in behaviour(requests, context):
                await context.write(response)
            return
        response = await behaviour(requests, context)
        if not handler.response_streaming:
            serialize: Any = handler.response_serializer
            data = serialize(response)
            del response  # or it would wait beside its bytes
            await self.send(data, caller, context)


def serialized_or_bytes(serialize: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """The serializer, for which bytes are an answer that was serialized already."""
    return lambda answer: answer if isinstance(answer, bytes) else serialize(answer)
