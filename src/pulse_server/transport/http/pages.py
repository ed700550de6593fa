"""What one server process tells over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from http import HTTPStatus

from pulse_server.service.readiness import Check, Readiness
from pulse_server.telemetry.exposition import Exposition, Text
from pulse_server.transport.http.exchange import Answer, Request
from pulse_server.transport.http.server import Page

HEALTH_PATH = "/healthz"
READINESS_PATH = "/readyz"
METRICS_PATH = "/metrics"


class ProcessPages:
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
        # One at a time, in a thread: with a thousand topics it is a second's work, and jobs must not wait.
        async with self._rendering:
            text = await asyncio.to_thread(self._exposition.snapshot().render, *accepted(request))
        return metrics_answer(text)


async def healthy(_request: Request) -> Answer:
    """Whoever can answer this is alive. That the database is away is no reason to be restarted."""
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
    """Which formats and which compression the reader takes."""
    return request.headers.get("accept", ""), request.headers.get("accept-encoding", "")


def metrics_answer(text: Text) -> Answer:
    headers = {"Vary": "Accept, Accept-Encoding"}
    if text.is_compressed:
        headers["Content-Encoding"] = "gzip"
    return Answer(HTTPStatus.OK, text.body, text.content_type, headers)
