"""The open stream of a line: numbered messages, and those who wait for their answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio

from pulse import tuning
from pulse.errors import ClientClosed
from pulse.wire.failures import is_retryable


class LineStream:
    """A stream that is open. `left` is called once nobody should use it any more, `ended` once it is over."""

    def __init__(
        self, stream: Any, *, left: Callable[[LineStream], object], ended: Callable[[LineStream], object]
    ) -> None:
        self._stream = stream
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
        self._reading = self._loop.create_task(self._read(), name="pulse-line")

    async def ask(self, message: Any, timeout_seconds: float) -> Any:
        """Return the answer to the message, or None if it has to be asked without a line.

        Raises AioRpcError when the line breaks, or no answer comes in time.
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

    async def close(self) -> None:
        """End the stream now. Those who wait get ClientClosed."""
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
            # Not by whoever asks: gRPC ends the whole stream when a write of it is cancelled.
            self._writing = self._loop.create_task(self._write(), name="pulse-line")

    async def _write(self) -> None:
        try:
            while self._unsent:
                number, message = self._unsent.popleft()
                if number in self._waiting:
                    await self._stream.write(message)
            if self._is_finishing:
                await self._stream.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the stream is over: the reader hears of it, and tells everybody
        finally:
            self._writing = None

    # ------------------------------------------------------------ hearing

    async def _read(self) -> None:
        try:
            while (message := await self._stream.read()) is not grpc.aio.EOF:
                self.has_answered = True
                answer = self._waiting.get(message.number)
                if answer is not None and not answer.done():
                    answer.set_result(message)
            # In order: the server is stopping, and what it had not read by then it never will.
            self._leave()
            self._fail(lambda: _error(grpc.StatusCode.CANCELLED, "The server ended the line."))
        except grpc.aio.AioRpcError as error:
            self._leave()
            # What trying again cannot mend may be wrong with one message only, or with streams as such: each
            # who waits hears the truth by a call of its own.
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
            self._leave()
            self._finish_if_done()

    def _leave(self) -> None:
        """Have nobody ask here any more; those who wait may still get their answers."""
        if not self._is_finishing:
            self._is_finishing = True
            self._left(self)

    def _finish_if_done(self) -> None:
        if self._is_finishing and not self._waiting and not self._reading.done():
            self._write_soon()
            # A server that does not answer its end either has it broken off.
            self._timer.cancel()
            self._timer = self._loop.call_later(tuning.TRY_TIMEOUT_SECONDS, self._stream.cancel)


def _closed() -> ClientClosed:
    return ClientClosed("The client was closed during the call.")


def _again(error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """Return the same error: each who raises it adds a traceback to its own."""
    return grpc.aio.AioRpcError(
        error.code(), error.initial_metadata(), error.trailing_metadata(), details=error.details()
    )


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
