"""Where clients connect while a kit is open."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pulse.errors import ClientClosed
from pulse.testing.channel import KitChannel
from pulse.testing.server import KitServer

if TYPE_CHECKING:
    import grpc.aio

    from pulse.wire.endpoint import Endpoint


class ToKit:
    """All clients use the server of the kit, whatever their addresses are."""

    runs_workers = False

    def __init__(self, server: KitServer, used: Callable[[], None]) -> None:
        """`used` is called before each verb of a client."""
        self._channel = KitChannel(server)
        self._used = used
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop of the handlers, while they run."""

    def check(self) -> None:
        self._used()

    def check_database(self) -> None:
        for_django = ' Or set "ENQUEUE" to "on_commit" in the settings of the tests.'
        raise ClientClosed(
            "The testing kit has no database: pulse.sql, pulse.outbox and ctx.complete would use that of "
            "your connection. Use the fixture pulse_server, and connect the application to its "
            "`database_url`." + (for_django if "pulse.django.enqueueing" in sys.modules else "")
        )

    def connect(self, endpoint: Endpoint) -> tuple[Endpoint, Callable[[Endpoint], grpc.aio.Channel]]:
        return endpoint, lambda _endpoint: cast("grpc.aio.Channel", self._channel)
