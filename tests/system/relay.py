"""A network that holds things up: a TCP relay that keeps answers back and cuts connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Relay:
    """Passes bytes between callers and one server."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._trigger = b""
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.is_holding = asyncio.Event()

    def hold_answers_after(self, request: bytes) -> None:
        """Keep back all that the server says, from the moment in which a caller says this."""
        self._trigger = request

    def let_go(self) -> None:
        """Deliver what was kept back, and keep nothing back any more."""
        self._trigger = b""
        self._is_open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(self._host, int(self._port))
        for coroutine in (self._ask(reader, requests), self._answer(answers, writer)):
            task = asyncio.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def cut(self) -> None:
        """Break every connection; new ones are accepted."""
        for task in self._tasks:
            task.cancel()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if self._trigger and self._trigger in data:
                    self._is_open.clear()
                    self.is_holding.set()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._is_open.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def relay_to(target: str) -> AsyncIterator[Relay]:
    """Listen on a free port for the length of a block."""
    relay = Relay(target)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.address = "{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield relay
    finally:
        server.close()
        relay.cut()
