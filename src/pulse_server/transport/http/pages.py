"""The HTTP pages /healthz, /readyz and /metrics: of one process, and of a supervisor for all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pulse_server.base.exposition import Exposition, Text, merged
from pulse_server.base.metrics import Metrics
from pulse_server.domain.readiness import Check
from pulse_server.transport.http.exchange import Answer, Request
from pulse_server.transport.http.server import Page

# How long a supervisor waits for the page of one of its processes.
HTTP_GATHER_TIMEOUT = timedelta(seconds=3)
# A thousand topics make about 10 MB of metrics; a process that sends more is broken.
HTTP_GATHER_BYTES = 64 * 1024 * 1024

if TYPE_CHECKING:  # a supervisor does without the services
    from pulse_server.service.readiness import Readiness

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

    async def ready(self, _request: Request) -> Answer:
        return readiness_answer(self._readiness.checks)

    async def metrics(self, request: Request) -> Answer:
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

    async def ready(self, _request: Request) -> Answer:
        fetched = await self._fetch_all(READINESS_PATH)
        return readiness_answer([_check(process, answer) for process, answer in fetched.items()])

    async def metrics(self, request: Request) -> Answer:
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


async def healthy(_request: Request) -> Answer:
    """Liveness: the process answers. An unavailable database is no reason for a restart."""
    return Answer.sentence(HTTPStatus.OK, "ok")


def readiness_answer(checks: Sequence[Check]) -> Answer:
    is_ready = all(check.ok for check in checks)
    document = {
        "ready": is_ready,
        "checks": {
            check.name: {"ok": True} if check.ok else {"ok": False, "why": check.why} for check in checks
        },
    }
    return Answer(
        HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE,
        json.dumps(document, indent=2, ensure_ascii=False).encode() + b"\n",
        "application/json",
    )


def accepted(request: Request) -> tuple[str, str]:
    """Return the formats and the compression that the client accepts."""
    return request.headers.get("accept", ""), request.headers.get("accept-encoding", "")


def metrics_answer(text: Text) -> Answer:
    headers = {"Vary": "Accept, Accept-Encoding"}
    if text.is_compressed:
        headers["Content-Encoding"] = "gzip"
    return Answer(HTTPStatus.OK, text.body, text.content_type, headers)


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
