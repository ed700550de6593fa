"""The blocking client, for Django, Flask and scripts: the verbs of `Pulse` without asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, Unpack

from pulse.blocking.bridge import Bridge
from pulse.blocking.enqueue_middleware import apply_changes, check_sync
from pulse.blocking.handles import SyncHandles
from pulse.blocking.job_decorator import SyncJob, SyncRegistering, SyncRouter
from pulse.blocking.methods import parameters_of
from pulse.blocking.verbs import SyncVerbs
from pulse.client import Pulse, RunOptions, WorkOptions, is_part_of, run_in_processes
from pulse.errors import ClientClosed, InvalidHandler
from pulse.handlers.handler import HandlerOptions
from pulse.handlers.registry import E, F, M, Registry
from pulse.jobs.submissions import takes_options
from pulse.wire.connection import Connection
from pulse.wire.endpoint import Endpoint
from pulse.worker.outcomes import H


class SyncPulse(SyncRegistering, SyncVerbs):
    """A client of pulsed whose verbs block. Safe to share between threads.

    The first call connects and starts a thread. A client may be created before a fork (gunicorn's preload),
    but must only be called after it: gRPC does not survive a fork once it was used. Close it with
    `p.close()`, or use `with`.
    """

    @parameters_of(Pulse.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Validate the settings. Does not connect. Takes the parameters of `Pulse`."""
        self._async = Pulse(*args, **kwargs)
        is_part_of(self._async, self)
        self._bridge = Bridge(self._async._caller)
        self._async._registry.hold = self._hold_in_handler
        self._handles = SyncHandles(self._bridge)
        self._enqueue_middleware = []
        self._stop_worker: Callable[[], object] | None = None

    @property
    def address(self) -> str:
        """The address of pulsed, as host:port, of several servers with commas between them."""
        return self._async.address

    def server_time(self) -> datetime:
        """Return the time by the server's clock. See `Pulse.server_time`."""
        return self._async.server_time()

    @property
    def _endpoint(self) -> Endpoint:
        return self._async._endpoint

    def _live_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do nothing: the verbs have an event loop of their own."""

    # ------------------------------------------------------------ handlers

    @property
    def _registry(self) -> Registry:
        return self._async._registry

    def _register(
        self,
        topic: str,
        function: Callable[..., Any],
        names: Mapping[str, Any],
        options: HandlerOptions,
    ) -> SyncJob[..., ..., Any]:
        if isinstance(function, SyncJob):
            function = function.function
        return SyncJob(self, self._async._registry.register(topic, function, names, options))

    def include(self, router: SyncRouter, /) -> None:
        """Add the handlers and schedules of a router. Adds none if a topic has a handler already."""
        if not isinstance(router, SyncRouter):
            raise InvalidHandler(
                f"p.include of a SyncPulse takes a pulse.SyncRouter, but {router!r} was given: "
                "the enqueue of its jobs has to block."
            )
        pulse = self._async
        router._include_in(self, pulse._registry, pulse._declarations, pulse._caller)

    def middleware(self, function: M, /) -> M:
        """Run this function around every handler. For use as a decorator. See `Pulse.middleware`."""
        return self._async.middleware(function)

    def on_verdict(self, function: H, /) -> H:
        """Call this function with verdicts. For use as a decorator. See `Pulse.on_verdict`."""
        return self._async.on_verdict(function)

    def enqueue_middleware(self, function: E, /) -> E:
        """Run this plain function, of (enqueue, call_next), around every enqueue, in the caller's thread.

        For use as a decorator. See `Pulse.enqueue_middleware`.
        """
        check_sync(function)
        if not self._enqueue_middleware:
            self._async.enqueue_middleware(apply_changes)
        self._enqueue_middleware.append(function)
        return function

    def resource(self, factory: F, /) -> F:
        """Open this once for each worker process. For use as a decorator. See `Pulse.resource`."""
        self._async._registry.surroundings.add_resource(factory, sys._getframe(1).f_locals)
        return factory

    @property
    def handled_topics(self) -> tuple[str, ...]:
        """The topics that have a handler."""
        return self._async.handled_topics

    @takes_options(WorkOptions)
    def run(self, **options: Unpack[WorkOptions]) -> None:
        """Take jobs and run their handlers until SIGTERM, SIGINT or `close()`. Drain, then return.

        Blocks this thread. See `Pulse.run` for the parameters, declared schedules and draining.
        """
        _refuse_event_loop("run")
        self._async._run_settings(options)  # checks them before the event loop starts
        asyncio.run(self._run(options))

    def run_processes(
        self, processes: int, *, handle_signals: bool = True, **options: Unpack[RunOptions]
    ) -> None:
        """Run the handlers in several processes until SIGTERM or SIGINT. Drain, then return.

        Blocks this thread. See `Pulse.run_processes`.
        """
        _refuse_event_loop("run_processes")
        self._async._check_options(options)
        asyncio.run(run_in_processes(self, processes, options, handle_signals))

    def _hold_in_handler(self, topic: str, until: timedelta | datetime) -> Any:
        """Serve `ctx.hold`. It needs the event loop of the verbs, not of the worker."""
        if asyncio._get_running_loop() is None:
            return self.hold(topic, until)
        return asyncio.to_thread(self.hold, topic, until)

    async def _run(self, options: WorkOptions) -> None:
        # Run in the caller's thread, with a separate loop and connection. Only the main thread
        # receives signals. A handler that blocks on p.enqueue(…) then does not block this loop.
        loop = asyncio.get_running_loop()
        pulse = self._async
        connection = Connection(self._endpoint)
        worker = pulse._worker(connection, options, self)
        self._stop_worker = functools.partial(loop.call_soon_threadsafe, worker.stop)
        try:
            # Checked after _stop_worker is set: an earlier close() raises here, a later one stops the worker.
            self._bridge.check_open()
            await worker.run(options.get("handle_signals", True))
        finally:
            self._stop_worker = None
            await connection.close()

    # ------------------------------------------------------------ lifetime

    def close(self) -> None:
        """Close the connection and stop its thread. A `run()` in another thread drains and returns."""
        if (stop_worker := self._stop_worker) is not None:
            stop_worker()
        self._bridge.close()

    def __enter__(self) -> Self:
        self._bridge.reopen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"


def _refuse_event_loop(verb: str) -> None:
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        raise ClientClosed(f"SyncPulse.{verb}() would block the running event loop. Use pulse.Pulse.")
