"""What one server process tells over HTTP."""

from __future__ import annotations

import asyncio

from pulse_server.service.readiness import Readiness
from pulse_server.telemetry.exposition import Exposition
from pulse_server.transport.http.exchange import Answer, Request
from pulse_server.transport.http.pages import accepted, metrics_answer, pages_with, readiness_answer
from pulse_server.transport.http.server import Page


class ProcessPages:
    def __init__(self, readiness: Readiness, exposition: Exposition) -> None:
        self._readiness = readiness
        self._exposition = exposition
        self._rendering = asyncio.Lock()

    @property
    def pages(self) -> dict[str, Page]:
        return pages_with(self.ready, self.metrics)

    async def ready(self, _request: Request) -> Answer:
        return readiness_answer(self._readiness.checks)

    async def metrics(self, request: Request) -> Answer:
        # One at a time, in a thread: with a thousand topics it is a second's work, and jobs must not wait.
        async with self._rendering:
            text = await asyncio.to_thread(self._exposition.snapshot().render, *accepted(request))
        return metrics_answer(text)
