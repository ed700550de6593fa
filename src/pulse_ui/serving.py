"""Serves the dashboard over HTTP until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from pulse_ui import tuning
from pulse_ui.app import Dashboard
from pulse_ui.settings import Settings


class Connection(H11Protocol):
    """A connection that is closed if no complete request arrives in time.

    uvicorn closes a connection that is idle between two requests, but not one whose request never ends.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._check_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _check_later(self) -> None:
        wait = tuning.REQUEST_TIMEOUT.total_seconds()
        self._timer = self.loop.call_later(wait, self._check, self.cycle)

    def _check(self, last: RequestResponseCycle | None) -> None:
        is_served = self.cycle is not None and not self.cycle.response_complete
        if self.cycle is last and not is_served:
            self.transport.close()
        else:
            self._check_later()


class Server(uvicorn.Server):
    """uvicorn, except that open pages do not delay its stop, and a requested stop is a success."""

    def __init__(
        self,
        dashboard: Dashboard,
        *,
        handles_signals: bool = True,
        on_serving: Callable[[], None] | None = None,
    ) -> None:
        settings = dashboard.settings
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        super().__init__(
            uvicorn.Config(
                dashboard.app,
                http=Connection,
                log_config=None,
                access_log=False,
                server_header=False,
                # Without a configured proxy, forwarded headers are not trusted.
                proxy_headers=settings.public_url is not None,
                ssl_certfile=settings.tls_certificate,
                ssl_keyfile=settings.tls_key,
                timeout_graceful_shutdown=round(tuning.STOP_GRACE.total_seconds()),
            )
        )
        self._dashboard = dashboard
        self._handles_signals = handles_signals
        self._on_serving = on_serving
        self._closing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._on_serving is not None:
            self._on_serving()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM) if self._handles_signals else ()
        for number in signals:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Accept no more connections and end the streams of open pages. The second call does not wait."""
        self.force_exit = self.should_exit
        self.should_exit = True
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._dashboard.close())


def listen(settings: Settings) -> socket.socket:
    """Bind the address. Raises OSError with a sentence."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(tuning.BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise OSError(
            f"cannot listen on {settings.host}:{settings.port} ({reason}). "
            "Is another dashboard running there? Choose another address with --addr host:port."
        ) from None
    listener.setblocking(False)
    return listener
