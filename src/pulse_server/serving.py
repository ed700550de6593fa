"""Serves until a signal ends it, and logs its start."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from functools import partial

from pulse_server.app import running_app
from pulse_server.database.rights import OUTAGE_PATIENCE, wait_until_reachable
from pulse_server.doors.addresses import doors, warn_of_open_doors
from pulse_server.settings import Settings
from pulse_server.supervisor import Lifeline, longest_drain
from pulse_server.telemetry.exporting import traces_exported

log = logging.getLogger(__name__)


async def serve(settings: Settings, dsn: str, lifeline: Lifeline | None = None) -> None:
    """Run until SIGTERM or SIGINT; then drain and return. A second signal ends the drain.

    The schema must be current. With a lifeline this is one of several processes: it reports to its
    supervisor that it serves, and also drains when the supervisor is gone.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    starting = asyncio.current_task()

    def stop() -> None:
        stopping.set()
        if starting is not None:
            starting.cancel()  # it may wait for the database, and there is nothing to drain yet

    if lifeline is not None:
        await wait_until_reachable(dsn, OUTAGE_PATIENCE)  # it has answered the supervisor
        lifeline.when_abandoned(partial(loop.call_soon_threadsafe, stop), within=longest_drain(settings))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, stopping, stop)
    try:
        async with traces_exported(os.environ), running_app(settings, dsn) as (app, address):
            starting = None
            loop.add_signal_handler(signal.SIGHUP, app.read_again)
            log.info(
                "serving" if lifeline is None else "process_serving",
                extra={
                    "address": address,
                    "http_address": app.observation.http_address,
                    "pid": os.getpid(),
                    "lease_ttl_seconds": settings.lease_ttl.total_seconds(),
                    "embedded": settings.database_url is None,
                    **doors(settings),
                },
            )
            if lifeline is None:
                warn_of_open_doors(settings)
            else:
                lifeline.send("serving")
            await stopping.wait()
            log.info("draining")
    except asyncio.CancelledError:
        if starting is None:
            raise
    log.info("stopped")


def _on_signal(number: signal.Signals, stopping: asyncio.Event, stop: Callable[[], object]) -> None:
    if stopping.is_set():
        log.warning("stopped_at_once", extra={"signal": number.name})
        os._exit(1)
    stop()
