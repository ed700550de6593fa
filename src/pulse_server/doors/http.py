"""The HTTP pages /healthz, /readyz and /metrics: of one process, and of a supervisor for all of them.

Of HTTP/1.1 it has what probes and scrapers need: one request per connection, bounded in size, number and
time, and a login for a page. `Readiness` knows whether this server can serve requests, and why not.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from pulse_server.access.service import Authenticator
from pulse_server.base.errors import PulseError, TooManyLogins, Unauthenticated
from pulse_server.base.exposition import Exposition, Text, merged
from pulse_server.base.loops import Loop
from pulse_server.base.metrics import Metrics
from pulse_server.doors.addresses import PortInUse, listening_sockets

_END_OF_HEADERS = b"\r\n\r\n"
METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Header names are in lower case; `peer` is the client's address without the port."""

    method: str
    path: str
    headers: Mapping[str, str]
    peer: str


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def sentence(cls, status: HTTPStatus, text: str, **headers: str) -> HttpAnswer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, f"{text}\n".encode(), headers=named)

    def encode(self, *, with_body: bool) -> bytes:
        head = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Date": formatdate(usegmt=True),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in head.items()]
        text = "\r\n".join(lines).encode("latin-1") + _END_OF_HEADERS
        return text + self.body if with_body else text


class Refused(Exception):
    """The request is refused with `answer`."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__(answer.status.phrase)
        self.answer = answer


async def read_request(reader: asyncio.StreamReader, peer: str) -> Request | None:
    """Read a request up to the end of its headers. Returns None if the client disconnected. Raises Refused.

    The reader's limit bounds the size. A body is not read: none of the pages takes one.
    """
    try:
        text = await reader.readuntil(_END_OF_HEADERS)
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise Refused(
            HttpAnswer.sentence(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request's headers are too long."
            )
        ) from None
    first, *lines = text.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, version = _words(first)
    if not version.startswith("HTTP/1."):
        raise Refused(
            HttpAnswer.sentence(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "This port speaks HTTP/1.1.")
        )
    return Request(method, target.partition("?")[0], _headers(lines), peer)


def _words(line: str) -> tuple[str, str, str]:
    words = line.split(" ")
    if len(words) != 3 or not all(words):
        raise Refused(HttpAnswer.sentence(HTTPStatus.BAD_REQUEST, "The request's first line cannot be read."))
    return words[0], words[1], words[2]


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        # A proxy may interpret a header name with white space differently.
        if not colon or not name or any(character.isspace() for character in name):
            raise Refused(
                HttpAnswer.sentence(HTTPStatus.BAD_REQUEST, "A header of the request cannot be read.")
            )
        if name == "authorization" and name in headers:
            # Which of them counts would depend on the reader.
            raise Refused(
                HttpAnswer.sentence(HTTPStatus.BAD_REQUEST, "The request has more than one Authorization.")
            )
        headers[name] = value.strip()
    return headers


# Time for a client to send its request, and to read the answer. A healthy client needs little.
HTTP_REQUEST_TIMEOUT = timedelta(seconds=5)
HTTP_ANSWER_TIMEOUT = timedelta(seconds=10)
# Request line and headers. A Prometheus with a long bearer token needs less than half of it.
HTTP_REQUEST_BYTES = 8 * 1024
# A few probes and scrapers at a time; more is a mistake, or an attack.
HTTP_CONNECTIONS = 64

log = logging.getLogger(__name__)

VARIABLE = "PULSE_HTTP_ADDR"
Page = Callable[[Request], Awaitable[HttpAnswer]]

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
            answer = HttpAnswer.sentence(HTTPStatus.REQUEST_TIMEOUT, "The request took too long to arrive.")
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
                HttpAnswer.sentence(
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

    async def _answer(self, request: Request) -> HttpAnswer:
        page = self._pages.get(request.path)
        if page is None:
            known = ", ".join(self._pages)
            return HttpAnswer.sentence(HTTPStatus.NOT_FOUND, f"There is no such page. There are {known}.")
        if request.method not in METHODS:
            return HttpAnswer.sentence(
                HTTPStatus.METHOD_NOT_ALLOWED, "This page can only be read.", Allow=", ".join(METHODS)
            )
        try:
            return await page(request)
        except Exception:
            log.exception("page_failed", extra={"path": request.path})
            return HttpAnswer.sentence(
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


_CHALLENGE = 'Basic realm="pulse", charset="UTF-8"'


def behind_login(page: Page, authenticator: Authenticator) -> Page:
    """Return the page for users of any role. Other clients get a login challenge."""

    async def guarded(request: Request) -> HttpAnswer:
        try:
            await authenticator.authenticate(request.headers.get("authorization"), request.peer)
        except Unauthenticated:
            return HttpAnswer.sentence(
                HTTPStatus.UNAUTHORIZED,
                "This page requires the user and password of a user of this server, by HTTP Basic.",
                WWW_Authenticate=_CHALLENGE,
            )
        except TooManyLogins as error:
            return HttpAnswer.sentence(
                HTTPStatus.TOO_MANY_REQUESTS, str(error), Retry_After=str(error.wait_seconds)
            )
        except PulseError as error:
            return HttpAnswer.sentence(HTTPStatus.SERVICE_UNAVAILABLE, str(error), Retry_After="1")
        return await page(request)

    return guarded


@dataclass(frozen=True, slots=True)
class Check:
    """One condition. `why` is a sentence if it does not hold."""

    name: str
    ok: bool
    why: str = ""


Look = Callable[[], Awaitable[None]]


class Readiness:
    """Checks at intervals and keeps the result: a probe never waits for the database.

    `ping` and `check_schema` return if all is well, and raise a PulseError otherwise. `changed` is
    called with the state, now and whenever it changes. `is_primed`: whether the gate has read the switches.
    """

    def __init__(
        self,
        ping: Look,
        check_schema: Look,
        is_primed: Callable[[], bool],
        *,
        changed: Callable[[bool], object],
        interval: timedelta,
        schema_interval: timedelta,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._ping = ping
        self._check_schema = check_schema
        self._is_primed = is_primed
        self._schema_interval = schema_interval.total_seconds()
        self._clock = clock
        self._schema_seen_at = -self._schema_interval
        self._database = Check("database", False, "The database was not asked yet.")
        self._schema = Check("schema", False, "The schema was not looked at yet.")
        self._serving = Check("serving", False, "The server is starting.")
        self._published = False
        self._changed = changed
        self.loop = Loop("readiness", self.tick, interval)
        changed(False)

    @property
    def checks(self) -> tuple[Check, ...]:
        is_primed = self._is_primed()
        gate = Check("gate", is_primed, "" if is_primed else "The pause switch was not read yet.")
        return (self._database, self._schema, gate, self._serving)

    @property
    def is_ready(self) -> bool:
        return all(check.ok for check in self.checks)

    def serve(self) -> None:
        """Record that calls are accepted from now on."""
        self._serving = Check("serving", True)
        if not self.is_ready:
            self._log()
        self._publish()

    def drain(self) -> None:
        """Record that the server is going away and must get no new callers."""
        self._serving = Check("serving", False, "The server is draining.")
        self._published = False  # the log has it already
        self._changed(False)

    async def tick(self) -> None:
        database, schema = await _look("database", self._ping), self._schema
        is_due = self._clock() - self._schema_seen_at >= self._schema_interval
        # After an outage another database may answer, or a restored one.
        is_doubtful = not self._database.ok or not schema.ok
        if database.ok and (is_due or is_doubtful):
            schema = await _look("schema", self._check_schema)
            self._schema_seen_at = self._clock()
        # Both at once: a database that is back is of no use before its schema is known.
        self._database, self._schema = database, schema
        self._publish()

    def _publish(self) -> None:
        if self.is_ready == self._published:
            return
        self._published = self.is_ready
        self._log()
        self._changed(self._published)

    def _log(self) -> None:
        reasons = [check.why for check in self.checks if not check.ok]
        log.info("readiness", extra={"ready": not reasons, "reasons": reasons})


async def _look(name: str, look: Look) -> Check:
    try:
        await look()
    except PulseError as error:
        return Check(name, False, str(error))
    except Exception:
        log.exception("check_failed", extra={"check": name})
        return Check(name, False, "Internal error. The log of the server has the details.")
    return Check(name, True)


# How long a supervisor waits for the page of one of its processes.
HTTP_GATHER_TIMEOUT = timedelta(seconds=3)
# A thousand topics make about 10 MB of metrics; a process that sends more is broken.
HTTP_GATHER_BYTES = 64 * 1024 * 1024

HEALTH_PATH = "/healthz"
READINESS_PATH = "/readyz"
METRICS_PATH = "/metrics"


class ProcessPages:
    """The pages of one server process."""

    def __init__(self, readiness: Readiness, exposition: Exposition) -> None:
        self._readiness = readiness
        self._exposition = exposition
        self._rendering = asyncio.Lock()

    @property
    def pages(self) -> dict[str, Page]:
        return {HEALTH_PATH: healthy, READINESS_PATH: self.ready, METRICS_PATH: self.metrics}

    async def ready(self, _request: Request) -> HttpAnswer:
        return readiness_answer(self._readiness.checks)

    async def metrics(self, request: Request) -> HttpAnswer:
        # One at a time, in a thread: with a thousand topics it takes a second, and jobs must not wait.
        async with self._rendering:
            text = await asyncio.to_thread(self._exposition.snapshot().render, *accepted(request))
        return metrics_answer(text)


class GatheredPages:
    """The pages of a supervisor, merged from the pages of its processes. Needs no database.

    `sockets` has the socket of each process by its name. The supervisor is healthy while it answers, and
    ready when all of its processes are. A process that does not answer is left out of the metrics;
    `pulse_process_up` reports it.
    """

    def __init__(self, sockets: Mapping[str, Path]) -> None:
        self._sockets = sockets
        self._merging = asyncio.Lock()

    @property
    def pages(self) -> dict[str, Page]:
        return {HEALTH_PATH: healthy, READINESS_PATH: self.ready, METRICS_PATH: self.metrics}

    async def ready(self, _request: Request) -> HttpAnswer:
        fetched = await self._fetch_all(READINESS_PATH)
        return readiness_answer([_check(process, answer) for process, answer in fetched.items()])

    async def metrics(self, request: Request) -> HttpAnswer:
        async with self._merging:
            fetched = await self._fetch_all(METRICS_PATH, accepted(request)[0])
            texts = {
                process: answer.body.decode()
                for process, answer in fetched.items()
                if answer is not None and answer.status == HTTPStatus.OK
            }
            up = Metrics().process_up
            up.read = lambda: {(process,): float(process in texts) for process in fetched}
            text = await asyncio.to_thread(merged, texts, up, *accepted(request))
        return metrics_answer(text)

    async def _fetch_all(self, path: str, accept: str = "*/*") -> dict[str, _Fetched | None]:
        answers = await asyncio.gather(*(_fetch(socket, path, accept) for socket in self._sockets.values()))
        return dict(zip(self._sockets, answers, strict=True))


# ------------------------------------------------------------ answers


async def healthy(_request: Request) -> HttpAnswer:
    """Liveness: the process answers. An unavailable database is no reason for a restart."""
    return HttpAnswer.sentence(HTTPStatus.OK, "ok")


def readiness_answer(checks: Sequence[Check]) -> HttpAnswer:
    is_ready = all(check.ok for check in checks)
    document = {
        "ready": is_ready,
        "checks": {
            check.name: {"ok": True} if check.ok else {"ok": False, "why": check.why} for check in checks
        },
    }
    return HttpAnswer(
        HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE,
        json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n",
        "application/json",
    )


def accepted(request: Request) -> tuple[str, str]:
    """Return the formats and the compression that the client accepts."""
    return request.headers.get("accept", ""), request.headers.get("accept-encoding", "")


def metrics_answer(text: Text) -> HttpAnswer:
    headers = {"Vary": "Accept, Accept-Encoding"}
    if text.is_compressed:
        headers["Content-Encoding"] = "gzip"
    return HttpAnswer(HTTPStatus.OK, text.body, text.content_type, headers)


# ------------------------------------------------------------ pages of another process


class _Fetched(NamedTuple):
    status: int
    body: bytes


class _TooLarge(Exception):
    """The page exceeds its limit."""


async def _fetch(socket_file: Path, path: str, accept: str) -> _Fetched | None:
    """Fetch a page over a Unix socket; None if there is no valid answer in time."""
    try:
        async with asyncio.timeout(HTTP_GATHER_TIMEOUT.total_seconds()):
            text = await _read(socket_file, path, accept)
    except (OSError, TimeoutError, _TooLarge):
        return None
    head, separator, body = text.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if not separator or len(words) < 3 or not words[1].isdigit():
        return None
    return _Fetched(int(words[1]), body)


async def _read(socket_file: Path, path: str, accept: str) -> bytes:
    reader, writer = await asyncio.open_unix_connection(socket_file)
    try:
        lines = [f"GET {path} HTTP/1.1", "Host: pulsed", f"Accept: {accept}", "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("latin-1"))
        await writer.drain()
        chunks: list[bytes] = []
        left = HTTP_GATHER_BYTES
        while chunk := await reader.read(64 * 1024):
            chunks.append(chunk)
            left -= len(chunk)
            if left < 0:
                raise _TooLarge
        return b"".join(chunks)
    finally:
        writer.transport.abort()


def _check(process: str, fetched: _Fetched | None) -> Check:
    name = f"process {process}"
    if fetched is None:
        return Check(name, False, "The process does not answer.")
    if fetched.status == HTTPStatus.OK:
        return Check(name, True)
    try:
        checks = json.loads(fetched.body)["checks"].values()
        reasons = [str(check["why"]) for check in checks if not check["ok"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        reasons = [f"The process answered {fetched.status}."]
    return Check(name, False, " ".join(reasons))
