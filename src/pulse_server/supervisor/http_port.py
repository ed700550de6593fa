"""The HTTP port of a supervisor, which answers for all of its processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pulse_server.doors import access_of
from pulse_server.settings import Settings
from pulse_server.telemetry.metrics import Metrics
from pulse_server.transport.http.login import behind_login
from pulse_server.transport.http.pages import METRICS_PATH, GatheredPages
from pulse_server.transport.http.server import HttpServer

log = logging.getLogger(__name__)


@asynccontextmanager
async def gathered_http(
    settings: Settings, address: str, child_sockets: Sequence[Path]
) -> AsyncIterator[None]:
    """Answer on the address while the block lasts.

    Each process is asked on its socket; the first is process 1. Raises PortInUse or BadSettings.
    """
    pages = GatheredPages({str(number): path for number, path in enumerate(child_sockets, start=1)}).pages
    # Logins at this port are not counted: the supervisor exports no metrics about itself.
    access = access_of(settings, Metrics()) if settings.metrics_need_login else None
    if access is not None:
        pages[METRICS_PATH] = behind_login(pages[METRICS_PATH], access.authenticator)
    tls = None
    if settings.tls is not None:
        from pulse_server.transport.tls import Certificates  # brings gRPC along

        tls = Certificates(settings.tls).server_ssl_context()
    loops = [] if access is None else [asyncio.create_task(loop.run()) for loop in access.loops]
    server = HttpServer(pages)
    try:
        log.info("http_serving", extra={"http_address": await server.start(address, tls)})
        yield
    finally:
        await server.stop()
        for loop in loops:
            loop.cancel()
        if access is not None:
            access.close()
