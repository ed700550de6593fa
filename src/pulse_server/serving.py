"""Serves until a signal ends it, and logs its start.

Spans of this process go to a collector, if the usual variables of OpenTelemetry name one.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from pulse_server.app import running_app
from pulse_server.database.rights import OUTAGE_PATIENCE, wait_until_reachable
from pulse_server.dispatch.publisher import IS_INSTALLED
from pulse_server.doors.addresses import doors, warn_of_open_doors
from pulse_server.settings import Settings
from pulse_server.supervisor import Lifeline, longest_drain

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

# Time for the last spans to reach their collector. A longer exit would look like a hang.
TRACE_FLUSH_TIMEOUT = timedelta(seconds=2)

log = logging.getLogger(__name__)

_EXPORTERS = {
    "grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http.trace_exporter",
}


class _UnknownProtocol(Exception):
    """No exporter speaks it."""


@asynccontextmanager
async def traces_exported(environ: Mapping[str, str]) -> AsyncIterator[None]:
    """Export spans during the block, unless it is not configured or a provider is set already.

    Any failure is logged as a warning: a server without traces is better than none.
    """
    provider = None
    if endpoint := _endpoint_variable(environ):
        try:
            provider = _set_provider(environ)
        except _UnknownProtocol as error:
            log.warning("traces_not_exported", extra={"reason": str(error)})
        except ModuleNotFoundError as error:
            log.warning("traces_not_exported", extra={"reason": _missing(endpoint, error)})
        except Exception as error:
            reason = f"{endpoint} is set, but the exporter did not start ({type(error).__name__})."
            log.warning("traces_not_exported", extra={"reason": reason})
    try:
        yield
    finally:
        if provider is not None:
            await _shut_down(provider)


def _endpoint_variable(environ: Mapping[str, str]) -> str | None:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() not in ("", "otlp"):
        return None
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next((name for name in names if environ.get(name)), None)


def _set_provider(environ: Mapping[str, str]) -> TracerProvider | None:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None  # as under opentelemetry-instrument, which exports as well
    exporter, protocol = _exporter(environ)
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "pulsed"}))
    # Its own exit handler would wait for a dead collector without a limit.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    log.info("exporting_traces", extra={"protocol": protocol})
    return provider


def _exporter(environ: Mapping[str, str]) -> tuple[Any, str]:
    """The exporter for the configured protocol, else for the first that is installed."""
    asked = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if asked:
        if (module := _EXPORTERS.get(asked.strip())) is None:
            raise _UnknownProtocol(
                f"OTEL_EXPORTER_OTLP_PROTOCOL is {asked!r}: give {' or '.join(_EXPORTERS)}."
            )
        return importlib.import_module(module).OTLPSpanExporter(), asked
    *others, last = _EXPORTERS
    for protocol in others:
        try:
            return importlib.import_module(_EXPORTERS[protocol]).OTLPSpanExporter(), protocol
        except ModuleNotFoundError:
            continue
    return importlib.import_module(_EXPORTERS[last]).OTLPSpanExporter(), last


def _missing(endpoint: str, error: ModuleNotFoundError) -> str:
    packages = "opentelemetry-sdk and opentelemetry-exporter-otlp"
    if not IS_INSTALLED:
        packages = f"opentelemetry-api, {packages}"
    return f"{endpoint} is set, but {error.name} is not installed. Install {packages}, or unset the variable."


async def _shut_down(provider: TracerProvider) -> None:
    """Send the remaining spans, in bounded time: a collector that does not respond must not delay exit."""
    loop = asyncio.get_running_loop()
    is_done = asyncio.Event()

    def shut_down() -> None:
        provider.shutdown()
        with suppress(RuntimeError):  # the loop is closed: no coroutine waits
            loop.call_soon_threadsafe(is_done.set)

    # Not a thread of the loop's pool: the interpreter waits for pool threads when it exits.
    threading.Thread(target=shut_down, name="traces-flush", daemon=True).start()
    try:
        await asyncio.wait_for(is_done.wait(), TRACE_FLUSH_TIMEOUT.total_seconds())
    except TimeoutError:
        log.warning("traces_lost", extra={"reason": "The collector did not take the last spans in time."})


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
