"""A relay before a server that counts the bytes that the server reads. It buffers almost nothing."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

_CHUNK = 16 * 1024


@dataclass
class CountingRelay:
    address: str = ""
    forwarded: int = 0
    """The bytes sent from callers to the server."""

    async def copy_counted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                writer.write(data)
                await writer.drain()
                self.forwarded += len(data)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def counting_relay(server_address: str) -> AsyncIterator[CountingRelay]:
    relay = CountingRelay()
    host, _, port = server_address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = socket.create_connection((host, int(port)))
        # As little as the system allows waits between the two.
        upstream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CHUNK)
        server_reader, server_writer = await asyncio.open_connection(sock=upstream)
        server_writer.transport.set_write_buffer_limits(0)
        tasks.add(asyncio.create_task(relay.copy_counted(reader, server_writer)))
        tasks.add(asyncio.create_task(_copy(server_reader, writer)))

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, limit=_CHUNK)
    relay.address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
