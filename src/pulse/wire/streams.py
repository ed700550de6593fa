"""A stream of messages from the server that is opened again whenever it ends."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeAlias, TypeVar

import grpc
import grpc.aio

from pulse import tuning
from pulse.wire.backoff import Backoff
from pulse.wire.connection import Connection
from pulse.wire.failures import is_retryable

Request = TypeVar("Request")
Message = TypeVar("Message")
StreamError: TypeAlias = grpc.aio.AioRpcError | TimeoutError | None
"""Why a stream ended: what gRPC raised; no first message in time; None for an end in order."""


async def reconnecting_stream(
    connection: Connection,
    open_call: Callable[[], grpc.aio.UnaryStreamCall[Request, Message] | None],
    lost: Callable[[StreamError, float], Awaitable[None]],
    *,
    welcome_seconds: Callable[[], float] = lambda: tuning.WELCOME_TIMEOUT_SECONDS,
    is_last: Callable[[Message], bool] = lambda message: False,
) -> AsyncGenerator[Message, None]:
    """Yield the messages of one call after the other. Ends when `open_call` returns None.

    `lost` is awaited after each call, with the reason and the wait before the next one; it raises to give up.
    `welcome_seconds` bounds the wait for the first message of a call. A call ends after a message that
    `is_last`.
    """
    backoff = Backoff(tuning.RECONNECT_FIRST_SECONDS, tuning.RECONNECT_LONGEST_SECONDS)
    while (call := open_call()) is not None:
        opened_at = time.monotonic()
        error: StreamError = None
        try:
            # Not wait_for: before Python 3.12 it swallows a cancellation that meets the message.
            async with asyncio.timeout(welcome_seconds()):
                message = await connection.read(call)
            while message is not None:
                yield message
                if is_last(message):
                    break
                message = await connection.read(call)
        except (grpc.aio.AioRpcError, TimeoutError) as caught:
            error = caught
        finally:
            call.cancel()
        # Only a call that lasted resets: a server that dies soon after each welcome gets growing waits.
        if time.monotonic() - opened_at > tuning.RECONNECT_LONGEST_SECONDS:
            backoff.reset()
        wait_seconds = backoff.next_seconds()
        await lost(error, wait_seconds)
        await asyncio.sleep(wait_seconds)


class Patience:
    """Bounds the wait for a message of a reconnecting stream, and decides which error ends the stream.

    `is_temporary` names further errors after which the stream is opened again.
    """

    def __init__(
        self,
        connection: Connection,
        timeout_seconds: float,
        is_temporary: Callable[[grpc.aio.AioRpcError], bool] = lambda _: False,
    ) -> None:
        self._connection = connection
        self._is_temporary = is_temporary
        self.renew(timeout_seconds)

    def renew(self, timeout_seconds: float = math.inf) -> None:
        """Set the deadline. Without a timeout there is none, and the stream is opened again without end."""
        self._deadline = time.monotonic() + timeout_seconds

    @property
    def is_endless(self) -> bool:
        """Whether there is no deadline."""
        return self._deadline == math.inf

    def welcome_seconds(self) -> float:
        """Return the bound of the wait for the first message of a call."""
        return min(tuning.WELCOME_TIMEOUT_SECONDS, max(self._deadline - time.monotonic(), 0.001))

    async def lost(self, error: StreamError, wait_seconds: float) -> None:
        """Raise the error that ends the stream: a refusal, or no message until the deadline."""
        is_refused = isinstance(error, grpc.aio.AioRpcError) and not (
            is_retryable(error) or self._is_temporary(error)
        )
        if self.is_endless and not is_refused:
            return
        if isinstance(error, grpc.aio.AioRpcError):
            reason = await self._connection.explain(error)
        else:
            reason = self._connection.out_of_time()
        if is_refused or time.monotonic() + wait_seconds >= self._deadline:
            raise reason
