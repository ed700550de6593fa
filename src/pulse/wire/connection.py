"""A connection to pulsed: calls with a timeout and retries, streams, and errors as sentences."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Container, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import ClientClosed, DeadlineExceeded, PulseError, Unavailable
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
from pulse.wire.redirection import current as current_redirection
from pulse.wire.servers import Servers

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb

Request = TypeVar("Request")
Response = TypeVar("Response")

# Of an answer: the time by the clock of the database, in seconds since 1970.
_TIME = "pulse-time"

logger = logging.getLogger("pulse.topics")


class Connection:
    """The calls to one pulsed, or to one of several. Belongs to the event loop that created it."""

    def __init__(self, endpoint: Endpoint) -> None:
        redirection = current_redirection()
        opened: Callable[[Endpoint], grpc.aio.Channel] = open_channel
        if redirection is not None:
            endpoint, opened = redirection.connect(endpoint)
        self.endpoint = endpoint
        self.is_remote = redirection is None or redirection.runs_workers
        """False if no network is used: in tests."""
        self.servers = Servers(endpoint, opened, self._end_streams_elsewhere)
        self.stub = self.servers.stub
        self.unserved = UnservedTopics()
        self.server_ahead = timedelta()
        """How far the clock of the server is ahead of this machine's, by its last answer with a time."""
        self._diagnosis = Diagnosis(endpoint)
        # The open streams, with the places of their servers.
        self._streams: WeakKeyDictionary[grpc.aio.Call, int] = WeakKeyDictionary()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """True once `close` was called: calls in flight end because of it."""
        return self._is_closed

    @property
    def is_ready(self) -> bool:
        """True while there is a connection to pulsed."""
        return not self._is_closed and self.servers.is_ready

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
        refusal = ""
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
                if is_from_pulsed(error):
                    refusal = error.details() or ""
            except asyncio.CancelledError:
                if self._is_closed and not (task and task.cancelling()):
                    raise ClientClosed("The client was closed during the call.") from None
                raise
        reason = await self.explain(error)
        if refusal and isinstance(reason, DeadlineExceeded):
            raise DeadlineExceeded(f"{reason} Its answer to the try before: {refusal}")
        raise reason

    async def try_once(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_seconds: float = tuning.TRY_TIMEOUT_SECONDS,
    ) -> Response:
        """Call once, with a timeout. Raises the errors of gRPC, and ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed before the call.")
        at = self.servers.choose()
        try:
            call = method(request, timeout=timeout_seconds, metadata=self.endpoint.call_metadata)
            response = await call
        except grpc.aio.AioRpcError as error:
            self.servers.failed(at, error, timeout_seconds)
            del call
            raise _without_call(error) from None
        if self.is_remote:
            for name, value in await call.trailing_metadata():
                if name == _TIME:
                    now = datetime.now(UTC)
                    self.server_ahead = datetime.fromtimestamp(float(value), UTC) - now
        return response

    async def send_all(self, method: Any, messages: Iterable[Any], timeout_seconds: float) -> Any:
        """Send all messages of one call, once. Raises the errors of gRPC, and ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed before the call.")
        at = self.servers.choose()
        try:
            return await method(messages, timeout=timeout_seconds, metadata=self.endpoint.metadata)
        except grpc.aio.AioRpcError as error:
            self.servers.failed(at, error, timeout_seconds)
            raise _without_call(error) from None

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
        at = self.servers.choose()
        call = method(request, metadata=self.endpoint.metadata)
        self._streams[call] = at
        return call

    def open_exchange(self, method: Any) -> Any:
        """Open a stream of messages in both directions, that `close` ends. Raises ClientClosed."""
        if self._is_closed:
            raise ClientClosed("The client was closed between two connections.")
        at = self.servers.choose()
        call = method(metadata=self.endpoint.metadata)
        self._streams[call] = at
        return call

    async def read(self, call: grpc.aio.UnaryStreamCall[Request, Response]) -> Response | None:
        """Return the next message of a stream, or None at its end, also when calls go to another server.

        Raises the errors of gRPC, and ClientClosed.
        """
        try:
            message: Any = await call.read()
            return None if message is grpc.aio.EOF else message
        except grpc.aio.AioRpcError as error:
            self.servers.failed(self._streams.get(call, -1), error)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            if self._is_closed:
                raise ClientClosed("The client was closed while it had a stream open.") from None
            if self._streams.get(call) != self.servers.at:
                return None
            raise

    def _end_streams_elsewhere(self) -> None:
        for call, at in list(self._streams.items()):
            if at != self.servers.at:
                call.cancel()

    async def close(self) -> None:
        """Close the channel. Calls in flight fail."""
        self._is_closed = True
        self._diagnosis.close()
        self._end_streams()
        await self.servers.close()
        if not self.is_remote:
            return
        # gRPC still delivers the ends of canceled calls to this loop. If the loop is closed by then, another
        # loop of the process receives them and logs an error for each.
        await asyncio.sleep(tuning.SETTLE_SECONDS)
        # gRPC destroys a channel with its last call, and dials until then. Its calls are in reference cycles.
        if self.servers.was_dialing:
            gc.collect()

    def _end_streams(self) -> None:
        # grpcio 1.83 and later does this itself.
        for call in list(self._streams):
            call.cancel()


def _without_call(error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """Return the error without gRPC's frames. A program that keeps it would keep its call and the channel."""
    return error.with_traceback(None)


class UnservedTopics:
    """Logs the server's notes about topics that no worker takes, each topic once for a connection."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def warn(self, notes: Iterable[pb.NoWorker], *, own: Container[str] = ()) -> None:
        """Log what was not logged yet. Topics that this client is about to serve (`own`) are left out."""
        for note in notes:
            if note.topic not in self._logged and note.topic not in own:
                self._logged.add(note.topic)
                logger.warning("%s", note.note)
