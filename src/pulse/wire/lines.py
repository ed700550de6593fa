"""A line: one stream that carries many calls of the same kind.

A message on an open stream costs about half of a call, on both sides. The stream opens when calls follow each
other closely and closes when it is idle, so that occasional callers keep none open (docs/figures.md#lines).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import ClientClosed
from pulse.wire.backoff import Backoff
from pulse.wire.connection import Connection
from pulse.wire.failures import FROM_PULSED, is_retryable

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb

Response = TypeVar("Response")

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Line(Generic[Response]):
    """Makes one kind of call, over a stream while calls are frequent. Belongs to one event loop.

    `method` is the RPC and `stream` the RPC that carries many of them. Only for repeatable calls: a call is
    made again if its stream ended without an answer.
    """

    def __init__(self, connection: Connection, method: Any, stream: Any) -> None:
        self._connection = connection
        self._method = method
        self._open = stream
        self._current: LineStream | None = None
        self._streams: set[LineStream] = set()
        self._answered_at = -math.inf
        self._rest = Backoff(tuning.LINE_REST_FIRST_SECONDS, tuning.LINE_REST_LONGEST_SECONDS)
        self._rests_until = -math.inf
        self._is_closed = False

    async def call(self, message: Any, timeout_seconds: float = tuning.TRY_TIMEOUT_SECONDS) -> Response:
        """Return the answer to the request in the message. Tries once.

        Raises the errors of gRPC, and ClientClosed.
        """
        if self._is_closed or self._connection.is_closed:
            raise ClientClosed("The client was closed before the call.")
        now = asyncio.get_running_loop().time
        deadline = now() + min(timeout_seconds, tuning.TRY_TIMEOUT_SECONDS)
        at = self._connection.servers.choose()
        if self._current is not None and self._current.at != at:
            self._current.leave()
        stream = self._current or self._open_if_busy(now(), at)
        if stream is not None and (answer := await self._ask(stream, message, deadline - now())) is not None:
            self._rest.reset()
            if answer.HasField("refusal"):
                raise _refused(answer.refusal)
            response: Response = answer.response
        else:
            remaining = max(deadline - now(), 0.001)
            response = await self._connection.try_once(self._method, message.request, remaining)
        self._answered_at = now()
        return response

    async def _ask(self, stream: LineStream, message: Any, timeout_seconds: float) -> Any:
        try:
            return await stream.ask(message, timeout_seconds)
        except grpc.aio.AioRpcError as error:
            self._connection.servers.failed(stream.at, error, timeout_seconds)
            raise

    async def close(self) -> None:
        """Close the stream. Calls in flight raise ClientClosed."""
        self._is_closed = True
        if self._streams:
            await asyncio.gather(*(stream.close() for stream in self._streams))
            # gRPC still delivers the ends of the streams to this loop, which may be closed next.
            await asyncio.sleep(tuning.SETTLE_SECONDS)

    def _open_if_busy(self, now: float, at: int) -> LineStream | None:
        """Open the stream if calls follow each other closely and the last one succeeded.

        `at` is the place of the server.
        """
        if now - self._answered_at > tuning.LINE_OPENS_WITHIN_SECONDS or now < self._rests_until:
            return None
        if not self._connection.is_remote:
            return None
        call = self._open(metadata=self._connection.endpoint.metadata)
        stream = self._current = LineStream(call, at, left=self._leave, ended=self._streams.discard)
        self._streams.add(stream)
        return stream

    def _leave(self, stream: LineStream) -> None:
        """Stop using the stream."""
        if self._current is stream:
            self._current = None
            if not stream.has_answered:
                # An older server, or a proxy that does not carry streams. Single calls work.
                self._rests_until = asyncio.get_running_loop().time() + self._rest.next_seconds()


def _refused(refusal: pb.Refusal) -> grpc.aio.AioRpcError:
    """Return the error that the call would have raised without a line."""
    return grpc.aio.AioRpcError(
        _CODES.get(refusal.code, grpc.StatusCode.UNKNOWN),
        grpc.aio.Metadata(),
        grpc.aio.Metadata((FROM_PULSED, "1")),
        details=refusal.message,
    )


class LineStream:
    """An open stream. `left` is called when no further call should use it, `ended` when it is closed."""

    def __init__(
        self,
        stream: Any,
        at: int,
        *,
        left: Callable[[LineStream], object],
        ended: Callable[[LineStream], object],
    ) -> None:
        self._stream = stream
        self.at = at
        """The place of its server."""
        self._left = left
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._unsent: deque[tuple[int, Any]] = deque()
        self._is_finishing = False
        self.has_answered = False
        self._used_at = self._loop.time()
        self._timer = self._loop.call_later(tuning.LINE_SILENT_SECONDS, self._finish_if_silent)
        self._writing: asyncio.Task[None] | None = None
        self._reading = asyncio.Task(self._read(), loop=self._loop, name="pulse-line")

    async def ask(self, message: Any, timeout_seconds: float) -> Any:
        """Return the answer to the message, or None if the call has to be made without a line.

        Raises AioRpcError if the stream breaks or no answer comes in time.
        """
        self._number += 1
        number = message.number = self._number
        answer = self._waiting[number] = self._loop.create_future()
        self._used_at = self._loop.time()
        timer = self._loop.call_later(timeout_seconds, self._expire, number)
        self._unsent.append((number, message))
        self._write_soon()
        try:
            return await answer
        finally:
            timer.cancel()
            self._waiting.pop(number, None)
            self._finish_if_done()

    def leave(self) -> None:
        """Accept no further call, and end the stream once the waiting calls have their answers."""
        self._leave()
        self._finish_if_done()

    async def close(self) -> None:
        """Close the stream now. Waiting calls raise ClientClosed."""
        self._leave()
        self._fail(_closed)
        tasks = [task for task in (self._reading, self._writing) if task is not None]
        self._stream.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------ sending

    def _write_soon(self) -> None:
        if self._writing is None:
            # In a separate task, not the caller's: gRPC ends the stream if a write is canceled.
            self._writing = asyncio.Task(self._write(), loop=self._loop, name="pulse-line")

    async def _write(self) -> None:
        try:
            while self._unsent:
                number, message = self._unsent.popleft()
                if number in self._waiting:
                    await self._stream.write(message)
            if self._is_finishing:
                await self._stream.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream is closed; the reader fails the waiting calls
        finally:
            self._writing = None

    # ------------------------------------------------------------ reading

    async def _read(self) -> None:
        try:
            while (message := await self._stream.read()) is not grpc.aio.EOF:
                self.has_answered = True
                answer = self._waiting.get(message.number)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            # The server is stopping, and reads no further messages.
            self._leave()
            self._fail(lambda: _error(grpc.StatusCode.CANCELLED, "The server ended the line."))
        except grpc.aio.AioRpcError as error:
            self._leave()
            # An error that is not retryable may concern one message, or streams in general: each waiting
            # call is made again without a line, and gets its own answer.
            self._fail(partial(_again, error) if is_retryable(error) else None)
        except asyncio.CancelledError:
            self._leave()
            self._fail(_closed)
            raise
        finally:
            self._timer.cancel()
            self._ended(self)

    def _fail(self, make_error: Callable[[], Exception] | None) -> None:
        for answer in self._waiting.values():
            if answer.done():
                continue
            if make_error is None:
                answer.set_result(None)
            else:
                answer.set_exception(make_error())

    def _expire(self, number: int) -> None:
        answer = self._waiting.get(number)
        if answer is not None and not answer.done():
            self._leave()
            answer.set_exception(_error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))

    # ------------------------------------------------------------ ending

    def _finish_if_silent(self) -> None:
        rest = self._used_at + tuning.LINE_SILENT_SECONDS - self._loop.time()
        if rest > 0 or self._waiting:
            rest = rest if rest > 0 else tuning.LINE_SILENT_SECONDS
            self._timer = self._loop.call_later(rest, self._finish_if_silent)
        else:
            self.leave()

    def _leave(self) -> None:
        """Accept no further call. Waiting calls may still get their answers."""
        if not self._is_finishing:
            self._is_finishing = True
            self._left(self)

    def _finish_if_done(self) -> None:
        if self._is_finishing and not self._waiting and not self._reading.done():
            self._write_soon()
            # If the server does not close its side, cancel the stream.
            self._timer.cancel()
            self._timer = self._loop.call_later(tuning.TRY_TIMEOUT_SECONDS, self._stream.cancel)


def _closed() -> ClientClosed:
    return ClientClosed("The client was closed during the call.")


def _again(error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """Return a copy of the error: each raise extends the traceback of the error that it raises."""
    return grpc.aio.AioRpcError(
        error.code(), error.initial_metadata(), error.trailing_metadata(), details=error.details()
    )


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
