"""Lines: streams of numbered requests, each answered like a unary call.

The function behind the unary call judges each message: the same checks, statements and errors. Answers
come in any order, so a slow commit holds up no other message. A server that drains reads no more,
answers what it has read, and closes. docs/figures.md#lines
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from mmap import PAGESIZE
from pathlib import Path
from typing import Any, Protocol

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse_server.base.errors import ResourceExhausted
from pulse_server.base.metrics import Metrics
from pulse_server.base.sharing import Budget, PendingBytes
from pulse_server.doors.boundary import Behavior, Failure, Malformed, Unreadable, returning_failures

_MEMORY = Path("/proc/self/statm")


def give_back_freed() -> None:
    """Return freed memory to the system, small blocks too. Can take 100 ms: call it in a thread."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes() -> int:
    """The memory of this process; 0 where the system does not report it."""
    try:
        return int(_MEMORY.read_text().split()[1]) * PAGESIZE
    except OSError:
        return 0


# Messages of one line that wait for their answers; the next is read once an answer has left. The
# SDK has few under way. For clients that send one job per message, this many share a commit.
LINE_MESSAGES = 32
# And their bytes: of one line, and of all lines of submits or of reports. The next message is read once there
# are fewer.
LINE_BYTES = 4 * 1024 * 1024
LINES_BYTES = 32 * 1024 * 1024
# How often the memory is checked while lines are open, 15 µs each, and while it is short.
LINES_LOOK = timedelta(milliseconds=50)
LINES_SHORT_LOOK = timedelta(milliseconds=500)
# Above this memory of the process, lines end and none is opened. Without lines the process stays
# below it, except for many large requests at once.
LINES_MEMORY = 320 * 1024 * 1024
# Memory that remains for LINES_LOOKS_UNTIL_FREED looks without a line does not belong to lines.
# Lines may take LINES_SPARE_MEMORY on top of it.
LINES_SPARE_MEMORY = 192 * 1024 * 1024
LINES_LOOKS_UNTIL_FREED = 10
# Lines of one connection; the SDK has one for each kind and client.
CONNECTION_LINES = 16

Context = grpc.aio.ServicerContext[Any, Any]

log = logging.getLogger(__name__)

_NO_LINES = "The server is short of memory and opens no lines. Use the unary call."
_MANY_LINES = "This connection has too many streams of submits and reports. End some."


class Endable(Protocol):
    """A stream on which a caller may send a message at any time."""

    def end(self) -> None: ...


class LineMemory:
    """Decides whether lines use too much memory of the process. ADR-0038

    The limit is computed from the memory without lines. Memory that remains after all lines have
    ended is not theirs: thousands of workers use as much. Then lines may be opened again, and the
    limit is that memory plus the need of lines. The limit falls with the memory.
    """

    def __init__(self) -> None:
        self.is_short = False
        self._limit = LINES_MEMORY
        self._is_known = False
        self._looks_without_lines = 0

    def update(self, resident: int, *, open_lines: int) -> None:
        """Record the memory of the process and the number of open lines."""
        self._limit = max(LINES_MEMORY, min(self._limit, resident + LINES_SPARE_MEMORY))
        self._looks_without_lines = 0 if open_lines else self._looks_without_lines + 1
        if not self._is_known or self._looks_without_lines >= LINES_LOOKS_UNTIL_FREED:
            self._limit = max(LINES_MEMORY, resident + LINES_SPARE_MEMORY)
        self._is_known = True
        self.is_short = resident > self._limit


class Lines:
    """The open lines, streams of AwaitJobs and workflows that are being sent. A server that drains ends them.

    A line always waits for its next message, and gRPC does not report how much of a message has arrived.
    Thousands of silent lines cost little; twenty with a message that never ends cost 640 MiB. So the memory
    of the process is checked while lines are open. When it is short they end, which frees partial messages.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._open: set[Endable] = set()
        self._of_connections = Budget(of_one=CONNECTION_LINES, refusal=_MANY_LINES)
        self._is_ending = False
        self._memory = LineMemory()
        self._next_check: asyncio.TimerHandle | None = None

    def carrying(self, method: str, behavior: Behavior, answer: Callable[..., Any]) -> Behavior:
        """Return the handler of a line. Each message is a call of the method, answered with `answer`."""
        call = returning_failures(method, behavior, self._metrics)
        pending = PendingBytes(LINES_BYTES)

        async def serve(_requests: Any, context: Context) -> None:
            line = _Line(call, answer, context, pending)
            with self.opened(line, _NO_LINES), self._of_connections.taken(context.peer()):
                if not self._is_ending:
                    await line.serve()

        return serve

    @contextmanager
    def opened(self, line: Endable, refusal: str) -> Iterator[None]:
        """End the line when memory is short. Raises ResourceExhausted with the refusal if it is short now."""
        if self._memory.is_short:
            raise ResourceExhausted(refusal)
        if not self._open:
            self._memory.update(resident_bytes(), open_lines=0)
        self._open.add(line)
        self._check_memory_soon()
        try:
            yield
        finally:
            self._open.discard(line)

    def _check_memory_soon(self) -> None:
        if self._next_check is None:
            loop = asyncio.get_running_loop()
            pause = LINES_SHORT_LOOK if self._memory.is_short else LINES_LOOK
            self._next_check = loop.call_later(pause.total_seconds(), self._check_memory, loop)

    def _check_memory(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next_check = None
        resident = resident_bytes()
        was_short = self._memory.is_short
        self._memory.update(resident, open_lines=len(self._open))
        if self._memory.is_short:
            if not was_short:
                log.warning(
                    "lines_ended_for_memory", extra={"resident_bytes": resident, "lines": len(self._open)}
                )
            for line in self._open:
                line.end()
            loop.run_in_executor(None, give_back_freed)
        if self._open or self._memory.is_short:
            self._check_memory_soon()

    def end(self) -> None:
        """Stop reading. Each line ends once all requests it has read are answered; new lines end at once."""
        self._is_ending = True
        for line in self._open:
            line.end()


class _Line:
    def __init__(
        self, call: Behavior, answer: Callable[..., Any], context: Context, pending_in_all: PendingBytes
    ) -> None:
        self._call = call
        self._pending = PendingBytes(LINE_BYTES)
        self._pending_in_all = pending_in_all
        self._answer = answer
        self._context = context
        # Acquired before a message is read, released once its answer has left. A caller that sends without
        # reading the answers fills its own buffers, not ours.
        self._room = asyncio.Semaphore(LINE_MESSAGES)
        self._answers: deque[Any] = deque()
        self._is_writing = False
        self._reading: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer every message until the caller is done or the line is ended."""
        self._reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait({self._reading})
            if self._under_way:
                await asyncio.wait(self._under_way)
            if not self._reading.cancelled():
                self._reading.result()
        finally:
            # Nothing may write once this method has returned: for gRPC the line is over.
            left = {self._reading, *self._under_way}
            for task in left:
                task.cancel()
            await asyncio.wait(left)

    def end(self) -> None:
        """Stop reading. Unread messages are lost, as when a connection breaks."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        while True:
            await self._room.acquire()
            for pending in (self._pending, self._pending_in_all):
                if pending.is_full:
                    await pending.wait_below_limit()
            read = await self._context.read()
            if read is grpc.aio.EOF:
                return
            # Its size in memory is known only now, and other lines may have read since.
            size = await read.weigh()
            if self._pending_in_all.is_full:
                await self._pending_in_all.wait_below_limit()
            self._pending.add(size)
            self._pending_in_all.add(size)
            try:
                message = await read.parse()
                if isinstance(message, Unreadable):
                    raise Malformed(message)  # its number is unknown, so it cannot be answered
            except BaseException:
                self._answered(size)
                raise
            task = asyncio.create_task(self._handle(message))
            self._under_way.add(task)
            task.add_done_callback(partial(self._is_done, size))

    def _is_done(self, size: int, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._answered(size)

    def _answered(self, size: int) -> None:
        self._pending.remove(size)
        self._pending_in_all.remove(size)

    async def _handle(self, message: Any) -> None:
        outcome = await self._call(message.request, self._context)
        if isinstance(outcome, Failure):
            refusal = pb.Refusal(code=outcome.code.value[0], message=outcome.sentence)
            self._answers.append(self._answer(number=message.number, refusal=refusal))
        else:
            self._answers.append(self._answer(number=message.number, response=outcome))
        if not self._is_writing:
            await self._write()

    async def _write(self) -> None:
        """Send all answers, also answers added during a write: gRPC accepts one write at a time."""
        self._is_writing = True
        try:
            while self._answers:
                await self._context.write(self._answers.popleft())
                self._room.release()
        except (grpc.aio.InternalError, grpc.aio.UsageError):
            self.end()  # the caller has disconnected
        finally:
            self._is_writing = False
