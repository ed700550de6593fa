"""One connection through a proxy: two sockets, and the bytes in transit between them."""

import asyncio
import socket
import struct
import time
from contextlib import suppress
from enum import Flag, auto
from typing import Protocol, TypeAlias

CHUNK_BYTES = 64 * 1024
# The bytes in transit in one direction. Beyond it nothing more is read, as with a full TCP window.
_CHUNKS_UNDER_WAY = 64
_RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: to close is to reset

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
# When it is due on the other side, and what it is: bytes, the end (none), or a reset (None).
Chunk: TypeAlias = tuple[float, bytes | None]


class Way(Flag):
    """The direction that a condition affects."""

    REQUESTS = auto()
    """From the callers to the server."""
    ANSWERS = auto()
    """From the server to the callers."""
    BOTH = REQUESTS | ANSWERS


class Network(Protocol):
    """What a connection asks of the conditions that affect it."""

    def lag_seconds(self) -> float: ...

    def vanishes(self, way: Way) -> bool: ...

    async def thawed(self, way: Way) -> None: ...

    def heard(self, request: bytes) -> None: ...


class Connection:
    """Passes bytes both ways, as well as the network lets it. An end travels behind the bytes before it."""

    def __init__(self, network: Network, caller: Streams, server: Streams) -> None:
        self.loses_answers = False
        self.opened_at = time.monotonic()
        self.is_torn = False  # some of its bytes are lost, so the rest cannot be parsed
        self._network = network
        self._caller = caller
        self._server = server
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Return once both sides have closed, or the connection is cut."""
        self._tasks = {
            asyncio.create_task(self._pass(Way.REQUESTS, self._caller[0], self._server[1])),
            asyncio.create_task(self._pass(Way.ANSWERS, self._server[0], self._caller[1])),
        }
        try:
            await asyncio.wait(self._tasks)
        finally:
            self.cut()

    def cut(self) -> None:
        """Reset both sides and drop the bytes in transit. A side that has already closed is only closed."""
        is_over = all(task.done() and not task.cancelled() for task in self._tasks)
        for task in self._tasks:
            task.cancel()
        for _, writer in (self._caller, self._server):
            if is_over:
                writer.close()
            else:
                reset(writer)

    async def _pass(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        under_way: asyncio.Queue[Chunk] = asyncio.Queue(_CHUNKS_UNDER_WAY)
        reading = asyncio.create_task(self._read(way, reader, under_way))
        try:
            await self._deliver(way, under_way, writer)
        finally:
            reading.cancel()

    async def _read(self, way: Way, reader: asyncio.StreamReader, under_way: "asyncio.Queue[Chunk]") -> None:
        data: bytes | None
        while True:
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                data = None
            if way is Way.REQUESTS and data:
                self._network.heard(data)
            await under_way.put((_now() + self._network.lag_seconds(), data))
            if not data:
                return

    async def _deliver(
        self, way: Way, under_way: "asyncio.Queue[Chunk]", writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await under_way.get()
            if due > _now():
                await asyncio.sleep(due - _now())
            await self._network.thawed(way)
            if self._network.vanishes(way) or (way is Way.ANSWERS and self.loses_answers):
                self.is_torn = True
                continue
            try:
                if data:
                    writer.write(data)
                    await writer.drain()
                elif data is None:
                    return self.cut()
                else:
                    return writer.write_eof()
            except OSError:  # that side is gone
                return self.cut()


def reset(writer: asyncio.StreamWriter) -> None:
    """End the connection so that the other side sees it reset."""
    with suppress(OSError, AttributeError):  # closed already
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


def _now() -> float:
    return asyncio.get_running_loop().time()
