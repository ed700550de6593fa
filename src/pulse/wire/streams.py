"""Streams to pulsed: opened again whenever they end, or a line, which carries many calls of the same kind.

A message on an open stream costs about half of a call, on both sides. A line opens when calls follow each
other closely and closes when it is idle, so that occasional callers keep none open (docs/figures.md#lines).
Calls are batched: items that arrive while a call is in flight are sent with the next one.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import ClientClosed
from pulse.wire.connection import Connection
from pulse.wire.servers import FROM_PULSED, JitteredBackoff, is_retryable

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb

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
    backoff = JitteredBackoff(tuning.RECONNECT_FIRST_SECONDS, tuning.RECONNECT_LONGEST_SECONDS)
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


Item = TypeVar("Item")


def batch_bounds(sizes: Iterable[int], most_items: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each batch of items with these sizes. A larger item goes alone."""
    begin = end = total = 0
    for size in sizes:
        total += size
        if end > begin and (end - begin == most_items or total > most_bytes):
            yield begin, end
            begin, total = end, size
        end += 1
    if end > begin:
        yield begin, end


class Coalescer(Generic[Item]):
    """Collects items and sends them in batches. A single item is sent at once.

    `send` settles every item that it is given and does not raise. Belongs to one event loop.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[None]],
        *,
        size_of: Callable[[Item], int],
        most_items: int,
        most_bytes: int,
        in_flight: int,
    ) -> None:
        self._send = send
        self._size_of = size_of
        self._most_items = most_items
        self._most_bytes = most_bytes
        self._in_flight = in_flight
        self._waiting: deque[Item] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._resting: dict[asyncio.Task[None], Item] = {}
        self._is_starting = False

    def add(self, item: Item) -> None:
        """Add an item. It is sent with the next batch."""
        self._waiting.append(item)
        if not self._is_starting and len(self._senders) < self._in_flight:
            self._start_sender()

    def add_later(self, item: Item, seconds: float) -> None:
        """Add an item after a delay, without delaying other items."""
        loop = asyncio.get_running_loop()
        rest = asyncio.Task(self._add_after(item, seconds), loop=loop)
        self._resting[rest] = item

    def __len__(self) -> int:
        """Return the number of items that wait for a batch."""
        return len(self._waiting)

    async def flushed(self) -> None:
        """Return once all added items have been sent."""
        while under_way := self._senders | self._resting.keys():
            await asyncio.wait(under_way)

    async def close(self) -> list[Item]:
        """Stop sending. Returns the items that were never sent."""
        left = [*self._waiting, *self._resting.values()]
        self._waiting.clear()
        under_way = [*self._senders, *self._resting]
        self._resting.clear()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        return left

    async def _add_after(self, item: Item, seconds: float) -> None:
        await asyncio.sleep(seconds)
        del self._resting[cast("asyncio.Task[None]", asyncio.current_task())]
        self.add(item)

    def _start_sender(self) -> None:
        # The task starts after all callbacks that are ready now, so a burst of callers shares its batch. Not
        # by create_task: the loop's task factory may be eager, or wrap the tasks of handlers.
        loop = asyncio.get_running_loop()
        self._is_starting = True
        sender = asyncio.Task(self._send_waiting(), loop=loop)
        self._senders.add(sender)
        sender.add_done_callback(self._senders.discard)

    async def _send_waiting(self) -> None:
        self._is_starting = False
        try:
            while self._waiting:
                batch = self._take()
                if self._waiting and not self._is_starting and len(self._senders) < self._in_flight:
                    self._start_sender()
                await self._send(batch)
        finally:
            # In the same step that found nothing waiting: the done callback runs a step later, and an item
            # added in between would rely on a sender that has ended.
            self._senders.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    def _take(self) -> list[Item]:
        waiting = self._waiting
        batch: list[Item] = []
        size = 0
        while waiting and len(batch) < self._most_items:
            size += self._size_of(waiting[0])
            if batch and size > self._most_bytes:
                break
            batch.append(waiting.popleft())
        return batch


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
        self._rest = JitteredBackoff(tuning.LINE_REST_FIRST_SECONDS, tuning.LINE_REST_LONGEST_SECONDS)
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
