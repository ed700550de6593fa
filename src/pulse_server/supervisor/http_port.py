"""The HTTP port of a supervisor, which answers for all of its processes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pulse_server.doors import access_of
from pulse_server.settings import Settings
from pulse_server.telemetry.metrics import Metrics
from pulse_server.transport.http.login import behind_login
from pulse_server.transport.http.pages import METRICS_PATH, GatheredPages
from pulse_server.transport.http.server import HttpServer

log = logging.getLogger(__name__)

Result = TypeVar("Result")


@contextmanager
def gathered_http(settings: Settings, address: str, child_sockets: Sequence[Path]) -> Iterator[None]:
    """Answer on the address while the block lasts, in a thread: a supervisor has no event loop.

    Each process is asked on its socket; the first is process 1. Raises PortInUse or BadSettings.
    """
    with _loop_in_thread() as loop:

        def wait_for(coroutine: Coroutine[Any, Any, Result]) -> Result:
            return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

        door = _Door(settings, child_sockets)
        log.info("http_serving", extra={"http_address": wait_for(door.open(address))})
        try:
            yield
        finally:
            wait_for(door.close())


class _Door:
    def __init__(self, settings: Settings, child_sockets: Sequence[Path]) -> None:
        sockets = {str(number): path for number, path in enumerate(child_sockets, start=1)}
        pages = GatheredPages(sockets).pages
        # Logins at this port are not counted: the supervisor exports no metrics about itself.
        self._access = access_of(settings, Metrics()) if settings.metrics_need_login else None
        if self._access is not None:
            pages[METRICS_PATH] = behind_login(pages[METRICS_PATH], self._access.authenticator)
        self._settings = settings
        self._server = HttpServer(pages)
        self._loops: list[asyncio.Task[None]] = []

    async def open(self, address: str) -> str:
        tls = None
        if self._settings.tls is not None:
            from pulse_server.transport.tls import Certificates  # brings gRPC along

            tls = Certificates(self._settings.tls).server_ssl_context()
        if self._access is not None:
            self._loops = [asyncio.create_task(loop.run()) for loop in self._access.loops]
        return await self._server.start(address, tls)

    async def close(self) -> None:
        await self._server.stop()
        for loop in self._loops:
            loop.cancel()
        if self._access is not None:
            self._access.close()


@contextmanager
def _loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="http", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
