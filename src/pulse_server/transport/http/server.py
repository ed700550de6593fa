"""Serves pages over HTTP/1.1: one request per connection, bounded in size, number and time."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

from pulse_server.transport.addresses import PortInUse, listening_sockets
from pulse_server.transport.http.exchange import METHODS, Answer, Refused, Request, read_request

# Time for a client to send its request, and to read the answer. A healthy client needs little.
HTTP_REQUEST_TIMEOUT = timedelta(seconds=5)
HTTP_ANSWER_TIMEOUT = timedelta(seconds=10)
# Request line and headers. A Prometheus with a long bearer token needs less than half of it.
HTTP_REQUEST_BYTES = 8 * 1024
# A few probes and scrapers at a time; more is a mistake, or an attack.
HTTP_CONNECTIONS = 64

log = logging.getLogger(__name__)

VARIABLE = "PULSE_HTTP_ADDR"
Page = Callable[[Request], Awaitable[Answer]]

_UNIX = "unix:"
# How much of a refused request is read and discarded: closing a connection with unread bytes may discard the
# answer.
_LINGER_BYTES = 64 * 1024
_LINGER_SECONDS = 1.0


class HttpServer:
    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        # The connections that wait for the client: for its request, or for it to close after the answer.
        self._idle: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._socket_file: Path | None = None

    async def start(self, address: str, tls: ssl.SSLContext | None = None) -> str:
        """Listen on `host:port` or `unix:/path`. Returns the address with the actual port.

        Raises PortInUse if the address is not available.
        """
        if address.startswith(_UNIX):
            self._socket_file = await self._listen_on_file(address)
            return address
        return await self._listen_on_port(address, tls)

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        for server in self._servers:
            server.close()
        connections = tuple(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        if self._socket_file is not None:
            self._socket_file.unlink(missing_ok=True)

    async def _listen_on_port(self, address: str, tls: ssl.SSLContext | None) -> str:
        seconds = HTTP_REQUEST_TIMEOUT.total_seconds() if tls else None
        sockets = listening_sockets(address, VARIABLE)
        for bound in sockets:
            self._servers.append(
                await asyncio.start_server(
                    self._serve,
                    sock=bound,
                    limit=HTTP_REQUEST_BYTES,
                    backlog=HTTP_CONNECTIONS,
                    ssl=tls,
                    ssl_handshake_timeout=seconds,
                    ssl_shutdown_timeout=seconds,
                )
            )
        return f"{address.rpartition(':')[0]}:{sockets[0].getsockname()[1]}"

    async def _listen_on_file(self, address: str) -> Path:
        path = Path(address.removeprefix(_UNIX))
        with suppress(OSError):  # no server listens there: the file is left over
            _, writer = await asyncio.open_unix_connection(path)
            writer.close()
            raise PortInUse(address, VARIABLE)
        try:
            server = await asyncio.start_unix_server(
                self._serve, path, limit=HTTP_REQUEST_BYTES, backlog=HTTP_CONNECTIONS
            )
        except OSError as error:
            raise PortInUse(address, VARIABLE, error.strerror or "the path cannot be used") from None
        self._servers.append(server)
        return path

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = _this_task()
        self._connections.add(task)
        try:
            await self._handle(reader, writer)
        except (OSError, TimeoutError, ssl.SSLError):
            pass  # the client has disconnected, or does not read the answer
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request: Request | None = None
        is_read = False
        try:
            async with asyncio.timeout(HTTP_REQUEST_TIMEOUT.total_seconds()):
                self._close_idle()
                with self._idling(writer):
                    request = await read_request(reader, _peer(writer))
            if request is None:
                return
            is_read = "content-length" not in request.headers and "transfer-encoding" not in request.headers
            answer = await self._answer(request)
        except TimeoutError:
            answer = Answer.sentence(HTTPStatus.REQUEST_TIMEOUT, "The request took too long to arrive.")
        except Refused as refusal:
            answer = refusal.answer
        with_body = request is None or request.method != "HEAD"
        async with asyncio.timeout(HTTP_ANSWER_TIMEOUT.total_seconds()):
            writer.write(answer.encode(with_body=with_body))
            await writer.drain()
            if not is_read:
                with self._idling(writer):
                    await _drain_request(reader, writer)
            writer.close()
            await writer.wait_closed()

    def _close_idle(self) -> None:
        """Close the longest idle connection if there are too many. Raises Refused if none is idle.

        Otherwise a few silent connections would keep the probes out, and the server would be restarted.
        """
        if len(self._connections) <= HTTP_CONNECTIONS:
            return
        oldest = next(iter(self._idle), None)
        if oldest is None:
            raise Refused(
                Answer.sentence(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "Too many connections are open. Try again.",
                    Retry_After="1",
                )
            )
        self._connections.discard(oldest)
        self._idle.pop(oldest).transport.abort()

    @contextmanager
    def _idling(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        task = _this_task()
        self._idle[task] = writer
        try:
            yield
        finally:
            self._idle.pop(task, None)

    async def _answer(self, request: Request) -> Answer:
        page = self._pages.get(request.path)
        if page is None:
            known = ", ".join(self._pages)
            return Answer.sentence(HTTPStatus.NOT_FOUND, f"There is no such page. There are {known}.")
        if request.method not in METHODS:
            return Answer.sentence(
                HTTPStatus.METHOD_NOT_ALLOWED, "This page can only be read.", Allow=", ".join(METHODS)
            )
        try:
            return await page(request)
        except Exception:
            log.exception("page_failed", extra={"path": request.path})
            return Answer.sentence(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "Internal error. The log of the server has the details.",
            )


async def _drain_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if writer.can_write_eof():
        writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            unread = _LINGER_BYTES
            while unread > 0 and (chunk := await reader.read(8192)):
                unread -= len(chunk)


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None, "asyncio runs it as a task"
    return task


def _peer(writer: asyncio.StreamWriter) -> str:
    name = writer.get_extra_info("peername")
    return str(name[0]) if isinstance(name, tuple) else "unix"
