"""A connection to one pulsed: calls with a timeout and retries, streams, and errors as sentences."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
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
    is_from_pulsed,
    is_retryable,
    no_answer,
    translate,
    unreachable,
    was_never_sent,
)

Request = TypeVar("Request")
Response = TypeVar("Response")


class Connection:
    """A channel to one pulsed. Belongs to the event loop that created it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._channel = open_channel(endpoint)
        self.stub = PulseServiceStub(self._channel)
        self._diagnosis = Diagnosis(endpoint)
        self._streams: set[grpc.aio.Call] = set()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True once `close` was called: calls in flight end because of it."""
        return self._is_closed

    @property
    def is_ready(self) -> bool:
        """True while there is a connection to pulsed."""
        return not self._is_closed and self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        *,
        timeout_seconds: float,
        repeatable: bool = True,
    ) -> Response:
        """Call, and retry until the timeout. Raises a PulseError.

        A call that is not repeatable is only retried if it was certainly not sent.
        """
        return await self.keep_trying(
            lambda seconds: self.try_once(method, request, min(seconds, tuning.TRY_TIMEOUT_SECONDS)),
            timeout_seconds,
            repeatable=repeatable,
        )

    async def keep_trying(
        self,
        try_once: Callable[[float], Awaitable[Response]],
        timeout_seconds: float,
        *,
        repeatable: bool = True,
        also: Callable[[grpc.aio.AioRpcError], bool] = lambda _error: False,
    ) -> Response:
        """Like `call`, for a function that makes one try and raises the errors of gRPC.

        `also` names further errors after which the call is repeated.
        """
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
                if not (is_retryable(error) or also(error)) or not (repeatable or was_never_sent(error)):
                    break
                self._diagnose(error)
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
        """Call once, with a timeout. Raises the errors of gRPC, and ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed before the call.")
        return await method(request, timeout=timeout_seconds, metadata=self.endpoint.metadata)

    async def send_all(self, method: Any, messages: Iterable[Any], timeout_seconds: float) -> Any:
        """Send all messages of one call, once. Raises the errors of gRPC, and ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed before the call.")
        return await method(messages, timeout=timeout_seconds, metadata=self.endpoint.metadata)

    def translate(self, error: grpc.aio.AioRpcError) -> PulseError:
        """Return the error to raise instead of gRPC's, with its cause if that is known already."""
        if self._diagnose(error) and (sentence := self._diagnosis.sentence):
            return Unavailable(sentence)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not is_from_pulsed(error):
            return self.out_of_time()
        return translate(self.endpoint, error.code(), error.details() or "", is_pulsed=is_from_pulsed(error))

    def out_of_time(self) -> PulseError:
        """Return the error for a call that got no answer in time.

        Without a connection the call was never sent: the server is not overloaded, it cannot be reached.
        """
        if self.is_ready:
            return no_answer(self.endpoint)
        # An earlier try may have failed with the reason, and the last one for want of time.
        reason = self._diagnosis.recent_sentence
        return unreachable(self.endpoint) if reason is None else Unavailable(reason)

    async def explain(self, error: grpc.aio.AioRpcError) -> PulseError:
        """Return the error to raise instead of gRPC's. Waits for the diagnosis of its cause."""
        if self._diagnose(error) or error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            await self._diagnosis.finished()
        return self.translate(error)

    def _diagnose(self, error: grpc.aio.AioRpcError) -> bool:
        """Start a diagnosis if the handshake may have failed. Returns whether it may."""
        may_be_the_handshake = (
            error.code() is grpc.StatusCode.UNAVAILABLE
            and not is_from_pulsed(error)
            and was_never_sent(error)
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
        # grpcio 1.83 and later does this itself.
        self._streams.add(call)
        call.add_done_callback(self._streams.discard)
        return call

    def open_exchange(self, method: Any) -> Any:
        """Open a stream of messages in both directions, that `close` ends. Raises ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed between two connections.")
        call = method(metadata=self.endpoint.metadata)
        self._streams.add(call)
        call.add_done_callback(self._streams.discard)
        return call

    async def read(self, call: grpc.aio.UnaryStreamCall[Request, Response]) -> Response | None:
        """Return the next message of a stream, or None at its end.

        Raises the errors of gRPC, and ClientClosed.
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
        """Close the channel. Calls in flight fail."""
        self._is_closed = True
        self._diagnosis.close()
        for call in tuple(self._streams):
            call.cancel()
        await self._channel.close()
        # gRPC still delivers the ends of canceled calls to this loop. If the loop is closed by then, another
        # loop of the process receives them and logs an error for each.
        await asyncio.sleep(tuning.SETTLE_SECONDS)


# After a failure calls fail at once for this long; then one call tries again. gRPC itself
# reconnects at least this often.
REST_SECONDS = 1.0


class Outage:
    """Bounds calls while pulsed does not answer, and fails them at once right after a failure.

    Without a connection a call gets `seconds` instead of its timeout. Once a call has failed, an outage
    begins: further calls fail without being sent, except for one at a time that tries again. Any answer
    ends it.
    """

    def __init__(self, endpoint: Endpoint, seconds: float) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._reason: str | None = None
        self._rests_until = 0.0
        self._is_trying = False

    async def bounded(
        self,
        timeout_seconds: float,
        connection: Connection,
        call: Callable[[float], Coroutine[Any, Any, Response]],
    ) -> Response:
        """Make the call with the time that it has. Raises Unavailable at once during an outage."""
        if self._reason is None:
            seconds = timeout_seconds if connection.is_ready else self._least(timeout_seconds)
            return await self._observed(call(seconds))
        if self._is_trying or time.monotonic() < self._rests_until:
            raise Unavailable(
                f"pulsed at {self._endpoint.address} did not answer a moment ago, so this call was not "
                f"sent. Calls try again {REST_SECONDS:.0f} s after a failure. The failure was: {self._reason}"
            )
        self._is_trying = True
        try:
            return await self._observed(call(self._least(timeout_seconds)))
        finally:
            self._is_trying = False

    def _least(self, timeout_seconds: float) -> float:
        return min(timeout_seconds, self._seconds)

    async def _observed(self, call: Coroutine[Any, Any, Response]) -> Response:
        try:
            response = await call
        except Unavailable as error:
            self._reason = error.message
            self._rests_until = time.monotonic() + REST_SECONDS
            raise
        except ClientClosed:
            raise
        except PulseError:
            self._reason = None  # pulsed has answered
            raise
        self._reason = None
        return response
