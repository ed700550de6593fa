"""A network with faults: a TCP proxy for one link, with conditions that begin and are healed.

    async with proxy_to(server.address) as proxy:
        with proxy.freeze():
            ...
        condition = proxy.lose_answers()
        ...
        condition.heal()

Conditions may overlap. One is over when it is healed or its block is left.
"""

import asyncio
import socket
import struct
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from enum import Flag, auto
from random import Random
from typing import Protocol, TypeAlias, TypeVar

# ---------------------------------------------------------------- connections
# One connection through a proxy: two sockets, and the bytes in transit between them.


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


# ---------------------------------------------------------------- proxy


__all__ = ["Condition", "Proxy", "Way", "database_proxy", "proxy_to"]

_HOST = "127.0.0.1"
_BACKLOG = 100

Value = TypeVar("Value")


class Condition:
    """A fault of a link, from now on or from the first request that contains `after`."""

    def __init__(self, begin: Callable[[], object], end: Callable[[], object], after: bytes = b"") -> None:
        self.after = after
        self.has_begun = asyncio.Event()
        self._begin = begin
        self._end = end
        self._is_healed = False
        if not after:
            self.begin()

    def begin(self) -> None:
        if not self._is_healed and not self.has_begun.is_set():
            self.has_begun.set()
            self._begin()

    def heal(self) -> None:
        """End the condition. A second call does nothing."""
        if not self._is_healed:
            self._is_healed = True
            if self.has_begun.is_set():
                self._end()

    def __enter__(self) -> "Condition":
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()


class Proxy:
    """Passes bytes between callers and one server, subject to its conditions."""

    def __init__(self, target: str, seed: int | str = 0) -> None:
        """The target is host:port, or the path of a unix socket. The seed decides the jitter."""
        self.address = ""
        self._target = target
        self._chance = Random(seed)
        # Bound and never listening: the port stays ours while new connections are refused.
        self._keeper = _bound(0)
        self._listener: socket.socket | None = None
        self._connections: set[Connection] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._waiting: list[Condition] = []  # for the request that begins them
        self._delays: list[tuple[float, float]] = []
        self._frozen: list[Way] = []
        self._lost: list[Way] = []
        self._refusals: list[None] = []
        self._open = {way: asyncio.Event() for way in Way}
        self._note_frozen()

    # ------------------------------------------------------------ conditions

    def delay(self, seconds: float, jitter_seconds: float = 0.0) -> Condition:
        """Delay all bytes by this much, and by up to the jitter more. Their order is kept."""
        return self._condition(self._delays, (seconds, jitter_seconds), lambda: None)

    def freeze(self, way: Way = Way.BOTH, *, after: bytes = b"") -> Condition:
        """Pass nothing on. Connections stay, new ones are accepted; healing delivers what was held up."""
        return self._condition(self._frozen, way, self._note_frozen, after)

    def blackhole(self, way: Way = Way.BOTH) -> Condition:
        """Drop bytes, also those of new connections. Healing cuts the connections that lost some."""
        return self._condition(self._lost, way, self._cut_torn)

    def refuse(self) -> Condition:
        """Refuse new connections. Existing ones stay."""
        return self._condition(self._refusals, None, self._listen_or_not)

    def lose_answers(self, *, after: bytes = b"") -> Condition:
        """Pass requests on and drop the answers, on existing connections; new ones are not affected.

        Healing cuts them: the server has carried out the requests, and its callers never get the answers.
        """
        victims: list[Connection] = []

        def begin() -> None:
            victims.extend(self._connections)
            for connection in victims:
                connection.loses_answers = True

        def end() -> None:
            for connection in victims:
                connection.cut()

        return self._known(Condition(begin, end, after))

    def cut(self) -> None:
        """Reset every connection, on both sides. New ones are accepted."""
        for connection in self._connections:
            connection.cut()

    def has_stood(self, seconds: float) -> bool:
        """Whether any connection has been open for this long."""
        now = time.monotonic()
        return any(now - connection.opened_at >= seconds for connection in self._connections)

    def lead_to(self, target: str) -> None:
        """Connect new connections to another server."""
        self._target = target

    def _condition(
        self, kind: list[Value], value: Value, changed: Callable[[], object], after: bytes = b""
    ) -> Condition:
        def begin() -> None:
            kind.append(value)
            changed()

        def end() -> None:
            kind.remove(value)
            changed()

        return self._known(Condition(begin, end, after))

    def _known(self, condition: Condition) -> Condition:
        if not condition.has_begun.is_set():
            self._waiting.append(condition)
        return condition

    def _note_frozen(self) -> None:
        for way, is_open in self._open.items():
            if any(way in frozen for frozen in self._frozen):
                is_open.clear()
            else:
                is_open.set()

    def _cut_torn(self) -> None:
        if not self._lost:
            for connection in self._connections:
                if connection.is_torn:
                    connection.cut()

    # ------------------------------------------------------------ what connections ask

    def lag_seconds(self) -> float:
        return sum(seconds + self._chance.uniform(0, jitter) for seconds, jitter in self._delays)

    def vanishes(self, way: Way) -> bool:
        return any(way in lost for lost in self._lost)

    async def thawed(self, way: Way) -> None:
        await self._open[way].wait()

    def heard(self, request: bytes) -> None:
        """Begin the conditions that wait for such a request, before it is passed on."""
        for condition in [each for each in self._waiting if each.after in request]:
            self._waiting.remove(condition)
            condition.begin()

    # ------------------------------------------------------------ listening

    async def open(self) -> None:
        """Listen on a free port."""
        self.address = f"{_HOST}:{self._keeper.getsockname()[1]}"
        self._listen_or_not()

    async def close(self) -> None:
        """Stop listening, and cut every connection."""
        self._refusals.append(None)  # which is never healed
        self._listen_or_not()
        self._keeper.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _listen_or_not(self) -> None:
        loop = asyncio.get_running_loop()
        if self._refusals and self._listener is not None:
            loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        elif not self._refusals and self._listener is None:
            self._listener = _bound(self._keeper.getsockname()[1])
            self._listener.setblocking(False)
            self._listener.listen(_BACKLOG)
            loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            caller, _ = listener.accept()
        except OSError:  # the caller has left
            return
        task = asyncio.create_task(self._serve(caller))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, caller: socket.socket) -> None:
        near = await asyncio.open_connection(sock=caller, limit=CHUNK_BYTES)
        try:
            if self._target.startswith("/"):
                far = await asyncio.open_unix_connection(self._target, limit=CHUNK_BYTES)
            else:
                host, _, port = self._target.rpartition(":")
                far = await asyncio.open_connection(host, int(port), limit=CHUNK_BYTES)
        except BaseException as error:
            reset(near[1])
            if isinstance(error, OSError):  # no server listens there
                return
            raise
        connection = Connection(self, near, far)
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)


@asynccontextmanager
async def proxy_to(target: str, seed: int | str = 0) -> AsyncIterator[Proxy]:
    """A proxy in front of a server for the length of a block."""
    proxy = Proxy(target, seed)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()


@asynccontextmanager
async def database_proxy(dsn: str, seed: int | str = 0) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy in front of a database, and the DSN that leads through it."""
    parts = urllib.parse.urlsplit(dsn)
    query = dict(urllib.parse.parse_qsl(parts.query))
    host = query.get("host") or parts.hostname or "localhost"
    port = query.get("port") or parts.port or 5432
    target = f"{host}/.s.PGSQL.{port}" if host.startswith("/") else f"{host}:{port}"
    login = parts.netloc.rpartition("@")[0]
    async with proxy_to(target, seed) as proxy:
        yield (
            proxy,
            urllib.parse.urlunsplit(
                parts._replace(
                    netloc=f"{login}@{proxy.address}" if login else proxy.address, query="sslmode=disable"
                )
            ),
        )


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((_HOST, port))
    return bound
