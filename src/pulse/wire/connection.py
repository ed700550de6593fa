"""A connection to one pulsed: calls with a deadline and retries, and errors as sentences."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import ClientClosed, PulseError, Unavailable
from pulse.v1.pulse_pb2_grpc import PulseServiceStub
from pulse.wire.backoff import Backoff
from pulse.wire.channels import open_channel
from pulse.wire.diagnosis import Diagnosis
from pulse.wire.endpoint import Endpoint
from pulse.wire.failures import (
    is_retryable,
    is_said_by_pulsed,
    never_left,
    no_answer,
    nobody_there,
    translate,
)

Request = TypeVar("Request")
Response = TypeVar("Response")


class Connection:
    """A channel to one pulsed. Make it, use it and close it within one running event loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._channel = open_channel(endpoint)
        self.stub = PulseServiceStub(self._channel)
        self._diagnosis = Diagnosis(endpoint)
        self._streams: set[grpc.aio.Call] = set()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True once `close` was called: calls that end now end because of it."""
        return self._is_closed

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        timeout_seconds: float,
        repeatable: bool = True,
    ) -> Response:
        """Call until an answer comes or the time is up; then raise a PulseError.

        A call that is not repeatable is only tried again when it certainly never left.
        """
        return await self.keep_trying(
            lambda seconds: self.try_once(method, request, seconds), timeout_seconds, repeatable=repeatable
        )

    async def keep_trying(
        self,
        try_once: Callable[[float], Awaitable[Response]],
        timeout_seconds: float,
        *,
        repeatable: bool = True,
    ) -> Response:
        """As `call`, with what makes one try and raises what gRPC raises."""
        deadline = time.monotonic() + timeout_seconds
        task = asyncio.current_task()
        error: grpc.aio.AioRpcError
        async for _ in Backoff(tuning.RETRY_FIRST_SECONDS, tuning.RETRY_LONGEST_SECONDS, deadline):
            if self._is_closed:
                raise ClientClosed("The client was closed during the call.")
            try:
                return await try_once(max(deadline - time.monotonic(), 0.001))
            except grpc.aio.AioRpcError as failed:
                error = failed
                if not is_retryable(error) or not (repeatable or never_left(error)):
                    break
                self._find_out_why(error)
            except asyncio.CancelledError:
                if self._is_closed and not (task and task.cancelling()):
                    raise ClientClosed("The client was closed during the call.") from None
                raise
        raise await self.explain(error)

    async def try_once(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_seconds: float = tuning.TRY_TIMEOUT_SECONDS,
    ) -> Response:
        """Call once, with a bound. Raises what gRPC raises, and ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed before the call.")
        timeout = min(timeout_seconds, tuning.TRY_TIMEOUT_SECONDS)
        return await method(request, timeout=timeout, metadata=self.endpoint.metadata)

    def translate(self, error: grpc.aio.AioRpcError) -> PulseError:
        """Return the error to raise instead of gRPC's, with what is known so far of its cause."""
        if self._find_out_why(error) and (sentence := self._diagnosis.sentence):
            return Unavailable(sentence)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not is_said_by_pulsed(error):
            return self.out_of_time()
        return translate(
            self.endpoint, error.code(), error.details() or "", is_pulsed=is_said_by_pulsed(error)
        )

    def out_of_time(self) -> PulseError:
        """Return the error for a call that got no answer in time.

        While no connection stands the call never left, and to look for an overload would mislead.
        """
        if not self._is_closed and self._channel.get_state() is grpc.ChannelConnectivity.READY:
            return no_answer(self.endpoint)
        return nobody_there(self.endpoint)

    async def explain(self, error: grpc.aio.AioRpcError) -> PulseError:
        """Return the error to raise instead of gRPC's, once its cause was looked for."""
        if self._find_out_why(error):
            await self._diagnosis.finished()
        return self.translate(error)

    def _find_out_why(self, error: grpc.aio.AioRpcError) -> bool:
        """Have a look at the handshake, if it may be what failed. Returns whether it may."""
        may_be_the_handshake = (
            error.code() is grpc.StatusCode.UNAVAILABLE
            and not is_said_by_pulsed(error)
            and never_left(error)
            and "refused" not in (error.details() or "")
            and not self._is_closed
        )
        if may_be_the_handshake:
            self._diagnosis.begin()
        return may_be_the_handshake

    def open_stream(
        self, method: grpc.aio.UnaryStreamMultiCallable[Request, Response], request: Request
    ) -> grpc.aio.UnaryStreamCall[Request, Response]:
        """Open a stream that `close` ends. Raises ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed between two connections.")
        call = method(request, metadata=self.endpoint.metadata)
        # grpcio does so by itself from 1.83 on.
        self._streams.add(call)
        call.add_done_callback(self._streams.discard)
        return call

    async def read(self, call: grpc.aio.UnaryStreamCall[Request, Response]) -> Response | None:
        """Return the next message of a stream, or None at its end.

        Raises what gRPC raises, and ClientClosed.
        """
        try:
            message: Any = await call.read()
            return None if message is grpc.aio.EOF else message
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_closed and not (task and task.cancelling()):
                raise ClientClosed("The client was closed while it had a stream open.") from None
            raise

    async def close(self) -> None:
        """Close the channel; calls that are under way fail."""
        self._is_closed = True
        self._diagnosis.close()
        for call in tuple(self._streams):
            call.cancel()
        await self._channel.close()
        # gRPC still delivers the ends of cancelled calls to this loop. If it is closed by then, another
        # loop of the process meets them instead, and logs an error for each.
        await asyncio.sleep(tuning.SETTLE_SECONDS)
