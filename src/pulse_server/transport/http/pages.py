"""The pages there are, and how their answers look, whoever gives them: a process, or a supervisor for all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus

from pulse_server.domain.readiness import Check
from pulse_server.telemetry.exposition import Text
from pulse_server.transport.http.exchange import Answer, Request
from pulse_server.transport.http.server import Page

HEALTH_PATH = "/healthz"
READINESS_PATH = "/readyz"
METRICS_PATH = "/metrics"


def pages_with(ready: Page, metrics: Page) -> dict[str, Page]:
    """Every page, by its path."""
    return {HEALTH_PATH: healthy, READINESS_PATH: ready, METRICS_PATH: metrics}


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
