"""What a supervisor tells over HTTP: what its processes told it, as one. It needs no database of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from pulse_server.domain.readiness import Check
from pulse_server.telemetry.merging import merged
from pulse_server.telemetry.metrics import Metrics
from pulse_server.transport.http.asking import NoAnswer, Told, ask
from pulse_server.transport.http.exchange import Answer, Request
from pulse_server.transport.http.pages import (
    METRICS_PATH,
    READINESS_PATH,
    accepted,
    metrics_answer,
    pages_with,
    readiness_answer,
)
from pulse_server.transport.http.server import Page


class GatheredPages:
    """`sockets`: where each process serves its own pages, by the process's name.

    The supervisor is well as long as it answers; it is ready when all of its processes are. A process that
    does not answer is left out of the metrics, where `pulse_process_up` says so.
    """

    def __init__(self, sockets: Mapping[str, Path]) -> None:
        self._sockets = sockets
        self._merging = asyncio.Lock()

    @property
    def pages(self) -> dict[str, Page]:
        return pages_with(self.ready, self.metrics)

    async def ready(self, _request: Request) -> Answer:
        told = await self._ask_all(READINESS_PATH)
        return readiness_answer([_check(process, answer) for process, answer in told.items()])

    async def metrics(self, request: Request) -> Answer:
        async with self._merging:
            told = await self._ask_all(METRICS_PATH, accepted(request)[0])
            texts = {
                process: answer.body.decode()
                for process, answer in told.items()
                if answer is not None and answer.status == HTTPStatus.OK
            }
            up = Metrics().process_up
            up.read = lambda: {(process,): float(process in texts) for process in told}
            text = await asyncio.to_thread(merged, texts, up, *accepted(request))
        return metrics_answer(text)

    async def _ask_all(self, path: str, accept: str = "*/*") -> dict[str, Told | None]:
        answers = await asyncio.gather(*(_ask(socket, path, accept) for socket in self._sockets.values()))
        return dict(zip(self._sockets, answers, strict=True))


async def _ask(socket: Path, path: str, accept: str) -> Told | None:
    try:
        return await ask(socket, path, accept)
    except NoAnswer:
        return None


def _check(process: str, told: Told | None) -> Check:
    name = f"process {process}"
    if told is None:
        return Check(name, False, "The process does not answer.")
    if told.status == HTTPStatus.OK:
        return Check(name, True)
    try:
        checks = json.loads(told.body)["checks"].values()
        reasons = [str(check["why"]) for check in checks if not check["ok"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        reasons = [f"The process answered {told.status}."]
    return Check(name, False, " ".join(reasons))
