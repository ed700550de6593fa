"""The blocking client, for Django, Flask and scripts: the verbs of `Pulse` without asyncio.

Functions become handlers of a `SyncPulse` or `SyncRouter`: its `@p.job(…)` returns a `SyncJob`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Never, Self, Unpack, cast, overload

from pulse.blocking.bridge import Bridge, SyncHandles, SyncJobHandle, parameters_of
from pulse.blocking.verbs import SyncVerbs, apply_changes, check_sync
from pulse.client import Pulse, RoutedHandlers, RunOptions, WorkOptions, is_part_of, run_in_processes
from pulse.decorators import (
    A1,
    A2,
    A3,
    A,
    C,
    ContextAfterOne,
    ContextAfterThree,
    ContextAfterTwo,
    ContextAlone,
    K,
    P,
    R,
    Registered,
    V,
    check_is_topic,
)
from pulse.errors import ClientClosed, InvalidHandler
from pulse.handlers.handler import Handler, HandlerOptions, JobOptions, make_options
from pulse.handlers.registry import E, EnqueueMiddleware, F, M, Registry
from pulse.jobs.submissions import OPTIONS, EnqueueOptions, takes_options
from pulse.wire.connection import Connection
from pulse.wire.endpoint import Endpoint
from pulse.worker.outcomes import H


class SyncJob(Registered[P, C, R]):
    """A handler of a `SyncPulse`. `job.enqueue(…)` takes the handler's parameters without the context."""

    def __init__(self, client: SyncVerbs, handler: Handler, options: EnqueueOptions | None = None) -> None:
        super().__init__(handler, options)
        self._client = client

    @overload
    def enqueue(
        self: SyncJob[P, C, Coroutine[Any, Any, V]], *args: P.args, **kwargs: P.kwargs
    ) -> SyncJobHandle[V]: ...
    @overload
    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> SyncJobHandle[R]: ...
    def enqueue(self, *args: Any, **kwargs: Any) -> SyncJobHandle[Any]:
        """Store a job that will call the handler with these arguments."""
        payload = self._handler.encode_call(args, kwargs, OPTIONS)
        return self._client.enqueue(self.topic, payload, **self._options)

    @overload
    def enqueue_many(
        self: SyncJob[P, C, Coroutine[Any, Any, V]], items: Iterable[Any]
    ) -> list[SyncJobHandle[V]]: ...
    @overload
    def enqueue_many(self, items: Iterable[Any]) -> list[SyncJobHandle[R]]: ...
    def enqueue_many(self, items: Iterable[Any]) -> list[SyncJobHandle[Any]]:
        """Store a job for each item: a document, or a mapping of keyword parameters."""
        payloads, options = self._encode_many(items)
        return self._client.enqueue_many(self.topic, payloads, **options)

    @overload
    def handle(self: SyncJob[P, C, Coroutine[Any, Any, V]], job_id: str) -> SyncJobHandle[V]: ...
    @overload
    def handle(self, job_id: str) -> SyncJobHandle[R]: ...
    def handle(self, job_id: str) -> SyncJobHandle[Any]:
        """Return the handle of a job that was stored before, to wait for it. Makes no call."""
        return self._stored(job_id)

    def _stored(self, job_id: str, duplicate: bool = False, replaced: bool = False) -> SyncJobHandle[Any]:
        client = self._client
        return client._handles.of(client._async._handles.made(job_id, self.topic, duplicate, replaced))

    @property
    def _async_middleware(self) -> list[EnqueueMiddleware]:
        """Of enqueues, in the event loop of the client. What runs in the thread of the caller is apart."""
        return self._client._async._enqueue_middleware

    def options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return this job with options: `job.options(priority=10).enqueue(…)`.

        `timeout` bounds the call that stores the job, not its attempts.
        """
        return type(self)(self._client, self._handler, self._added(options))


if TYPE_CHECKING:

    class SyncJobWithContextByName(SyncJob[..., ..., R], Generic[R, A1, A2, A3]):
        """See `JobWithContextByName`."""

        @overload
        def enqueue(
            self: SyncJobWithContextByName[Coroutine[Any, Any, V], A1, A2, A3],
            one: A1 = ...,
            two: A2 = ...,
            three: A3 = ...,
            /,
            **kwargs: Any,
        ) -> SyncJobHandle[V]: ...
        @overload
        def enqueue(
            self, one: A1 = ..., two: A2 = ..., three: A3 = ..., /, **kwargs: Any
        ) -> SyncJobHandle[R]: ...
        def enqueue(self, *args: Any, **kwargs: Any) -> SyncJobHandle[Any]: ...  # type: ignore[misc]  # it does


class SyncJobDecorator:
    """What `p.job("topic")` returns for a `SyncPulse`."""

    def __init__(self, register: Callable[[Callable[..., Any]], SyncJob[..., ..., Any]]) -> None:
        self._register = register

    @overload
    def __call__(self, function: Callable[[A, K], R], /) -> SyncJob[[A], [A, K], R]: ...
    @overload  # the overlap as in JobDecorator
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[K, P], R], /
    ) -> SyncJob[P, Concatenate[K, P], R]: ...
    @overload
    def __call__(
        self, function: ContextAfterThree[A1, A2, A3, R, K], /
    ) -> SyncJobWithContextByName[R, A1, A2, A3]: ...
    @overload
    def __call__(
        self, function: ContextAfterTwo[A1, A2, R, K], /
    ) -> SyncJobWithContextByName[R, A1, A2, Never]: ...
    @overload
    def __call__(
        self, function: ContextAfterOne[A1, R, K], /
    ) -> SyncJobWithContextByName[R, A1, Never, Never]: ...
    @overload
    def __call__(
        self, function: ContextAlone[R, K], /
    ) -> SyncJobWithContextByName[R, Never, Never, Never]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncJob[P, P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> SyncJob[..., ..., Any]:
        return self._register(function)


class SyncRegistering:
    """Registration of handlers, for `SyncPulse` and `SyncRouter`."""

    def job(self, topic: str, /, **options: Unpack[JobOptions]) -> SyncJobDecorator:
        """Register the decorated function as the handler of a topic. It becomes a `SyncJob`."""
        check_is_topic(topic)
        checked = make_options(options)
        return SyncJobDecorator(
            lambda function: self._register(topic, function, sys._getframe(2).f_locals, checked)
        )

    def register(
        self, topic: str, function: Callable[..., Any], /, **options: Unpack[JobOptions]
    ) -> SyncJob[..., ..., Any]:
        """Register a function as the handler of a topic. Raises InvalidHandler if it cannot be one."""
        return self._register(topic, function, sys._getframe(1).f_locals, make_options(options))

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> SyncJob[..., ..., Any]:
        raise NotImplementedError


class SyncRouter(SyncRegistering, RoutedHandlers):
    """Collects handlers and schedules without a client. `p.include(router)` adds them to a `SyncPulse`."""

    def _register(
        self, topic: str, function: Callable[..., Any], names: Mapping[str, Any], options: HandlerOptions
    ) -> SyncJob[..., ..., Any]:
        if isinstance(function, SyncJob):
            function = function.function
        handler = self._collect(topic, function, names, options)
        return SyncJob(cast("SyncVerbs", self._target), handler)


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
