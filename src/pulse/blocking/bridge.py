"""Runs the async verbs of a blocking client, in an event loop in a thread.

Blocking methods are made from async ones, `get_job = blocking(Pulse.get_job)`, and so are handles, whose
`result` and `wait` block. Each keeps the parameters, defaults and docstring of the async method, for type
checkers and for `help()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from datetime import timedelta
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from pulse import tuning
from pulse.enqueues import HandleSource, as_completed, gather
from pulse.errors import ClientClosed, InvalidArgument
from pulse.jobs.caller import Caller, result_of
from pulse.jobs.handles import JobHandle, R, handles_of, source_of
from pulse.jobs.models import JobInfo
from pulse.schedules import Declaration
from pulse.wire.redirection import current_redirection

_DJANGO = "pulse.django.clients"
_SDK = str(Path(__file__).parents[1]) + os.sep

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines for other threads. A daemon thread, so that it does not keep the process alive."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._is_ending = False
        self._thread = threading.Thread(target=self._serve, name="pulse-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Result], timeout_seconds: float | None = None) -> Result:
        """Run the coroutine and block until it is done. Raises ClientClosed if the loop ends first."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClientClosed("A SyncPulse cannot be called from its own event loop. Use pulse.Pulse there.")
        future = self._begin(coroutine)
        try:
            # A caller that was interrupted (Ctrl-C, a worker timeout) cancels its call.
            return result_of(future, timeout_seconds)
        except CancelledError:
            raise ClientClosed("The client was closed during the call.") from None

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call a function in the event loop, and do not wait for it. Raises RuntimeError if it is closed."""
        self._loop.call_soon_threadsafe(callback)

    def _begin(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        # Under the lock: a call added after the loop has ended would block forever.
        with self._lock:
            if self._is_ending:
                coroutine.close()
                raise ClientClosed("The client was closed before the call.")
            future: Future[Result] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    @property
    def is_over(self) -> bool:
        """True once it was stopped, and in a forked child, which does not have the thread."""
        return self._process != os.getpid() or self._loop.is_closed()

    def stop(self) -> None:
        """Stop the loop and its thread, in bounded time. Does nothing if `is_over`."""
        if self.is_over:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(tuning.EXIT_TIMEOUT_SECONDS)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        with self._lock:
            self._is_ending = True
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=tuning.EXIT_TIMEOUT_SECONDS))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        for future in tuple(self._under_way):
            future.cancel()


V = ParamSpec("V")
Item = TypeVar("Item")


class Bridge:
    """Runs async verbs for other threads. The thread starts with the first call."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._is_closed = False
        self._has_warned = False
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        _all.add(self)

    def call(
        self, verb: Callable[V, Coroutine[Any, Any, Result]], *args: V.args, **kwargs: V.kwargs
    ) -> Result:
        """Run an async verb and block until it is done."""
        self._warn_in_event_loop()
        in_event_loop: Callable[V, Coroutine[Any, Any, Result]] = getattr(verb, "in_event_loop", verb)
        return self._open_thread().run(in_event_loop(*args, **kwargs))

    def iterate(self, items: AsyncGenerator[Item, None]) -> Generator[Item, None, None]:
        """Yield the items of an async generator, blocking for each. Closing this generator closes it."""
        self._warn_in_event_loop()
        thread = self._open_thread()
        try:
            while (item := thread.run(_next(items))) is not None:
                yield item
        finally:
            if not thread.is_over:
                with contextlib.suppress(Exception):
                    thread.run(items.aclose(), tuning.EXIT_TIMEOUT_SECONDS)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call a function in the event loop, and do not wait for it. Does nothing after a close."""
        with contextlib.suppress(ClientClosed, RuntimeError):
            self._open_thread().call_soon(callback)

    def reopen(self) -> None:
        """Allow calls again after a close."""
        self._is_closed = False

    def check_open(self) -> None:
        """Raise ClientClosed after a close."""
        if self._is_closed:
            raise ClientClosed("This client is closed. Make a new one, or enter it with `with`.")

    def close(self) -> None:
        """Close the connection and end its thread. Later calls raise ClientClosed."""
        with self._lock:
            self._is_closed = current_redirection() is None  # the tests of a process share a client
            thread, self._thread = self._thread, None
        if thread is not None:
            _close(thread, self._caller)

    def _open_thread(self) -> LoopThread:
        with self._lock:
            self.check_open()
            if self._thread is None:
                self._thread = LoopThread()
                weakref.finalize(self, _close, self._thread, self._caller)
            return self._thread

    def _warn_in_event_loop(self) -> None:
        """Warn once if a call blocks an event loop: everything else that runs in it waits."""
        if asyncio._get_running_loop() is None or self._has_warned:
            return
        self._has_warned = True
        warnings.warn(
            "A SyncPulse was called in a running event loop: everything else in the loop waits for the call. "
            "Use pulse.Pulse and await its verbs, or call the SyncPulse with asyncio.to_thread()."
            + (" In Django: await pulse.django.aenqueue(job, …)." if _DJANGO in sys.modules else ""),
            RuntimeWarning,
            stacklevel=_levels_to_the_caller(),
        )

    def _forget_thread(self) -> None:
        # A new lock too: in a forked child the old one may be held by a thread of the parent.
        self._lock = threading.Lock()
        self._thread = None


def _levels_to_the_caller() -> int:
    """Return the level of the first frame outside of the SDK, counted from the caller of this function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SDK):
        level, frame = level + 1, frame.f_back
    return level


async def _next(items: AsyncGenerator[Item, None]) -> Item | None:
    return await anext(items, None)


def _close(thread: LoopThread, caller: Caller) -> None:
    if thread.is_over:
        return  # the finalizer also runs at exit, after close()
    with contextlib.suppress(Exception):
        thread.run(caller.close_session(), tuning.EXIT_TIMEOUT_SECONDS)
    thread.stop()


def _forget_threads() -> None:
    for bridge in list(_all):
        bridge._forget_thread()


_all: weakref.WeakSet[Bridge] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)

P = ParamSpec("P")


# ---------------------------------------------------------------- methods


class Client(Protocol):
    """An object with blocking methods: a `SyncPulse`, or its `schedules`."""

    _bridge: Bridge
    _async: Any
    """The object with the async methods."""


class BlockingMethod(Generic[P, Result]):
    """A method with the parameters of an async one. It is bound to its object as any function is."""

    def __init__(
        self,
        method: Callable[Concatenate[Any, P], object],
        function: Callable[..., Result],
        returns: str | None = None,
    ) -> None:
        """`function` takes the object and the parameters of `method`. `returns` replaces its annotation."""
        functools.update_wrapper(function, method)
        if returns is not None:
            signature = inspect.signature(method).replace(return_annotation=returns)
            function.__signature__ = signature  # type: ignore[attr-defined]
        self.function = function
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, client: None, owner: type[Any]) -> Callable[Concatenate[Any, P], Result]: ...
    @overload
    def __get__(self, client: object, owner: type[Any]) -> Callable[P, Result]: ...
    def __get__(self, client: object, owner: type[Any]) -> Callable[..., Result]:
        bound: Callable[..., Result] = self.function.__get__(client, owner)
        return bound


def parameters_of(
    method: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., Result]], Callable[Concatenate[Any, P], Result]]:
    """Give a method the parameters of another, for type checkers and for `help()`."""

    def give(own: Callable[..., Result]) -> Callable[Concatenate[Any, P], Result]:
        own.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
        return own

    return give


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, Result]]) -> BlockingMethod[P, Result]:
    """Return the method that blocks until the async one is done."""

    def call(client: Client, *args: P.args, **kwargs: P.kwargs) -> Result:
        return client._bridge.call(method, client._async, *args, **kwargs)

    return BlockingMethod(method, call)


def blocking_generator(
    method: Callable[Concatenate[Any, P], AsyncGenerator[Item, None]],
) -> BlockingMethod[P, Generator[Item, None, None]]:
    """Return a method that yields the items of the async method, and blocks for each item."""

    def call(client: Client, *args: P.args, **kwargs: P.kwargs) -> Generator[Item, None, None]:
        return client._bridge.iterate(method(client._async, *args, **kwargs))

    returned: str = method.__annotations__["return"]
    return BlockingMethod(method, call, returned.removeprefix("Async").replace(", None]", ", None, None]"))


def blocking_pages(
    method: Callable[Concatenate[Any, P], AsyncIterator[Item]],
    list_page: Callable[..., Coroutine[Any, Any, Any]],
) -> BlockingMethod[P, Iterator[Item]]:
    """Return the method that yields the items of all pages. It blocks for each page, not for each item."""

    def call(client: Client, *args: Any, page_size: int | None = None, **options: Any) -> Iterator[Item]:
        if page_size is not None:
            options["limit"] = page_size
        cursor: str | None = None
        while True:
            page = client._bridge.call(list_page, client._async, *args, cursor=cursor, **options)
            yield from page
            cursor = page.next_cursor
            if cursor is None:
                return

    return BlockingMethod(method, call, method.__annotations__["return"].removeprefix("Async"))


def declaring(method: Callable[Concatenate[Any, P], Declaration]) -> BlockingMethod[P, None]:
    """Return the method that declares a schedule. It returns None: a Declaration can only be awaited."""

    def call(client: Client, *args: P.args, **kwargs: P.kwargs) -> None:
        method(client._async, *args, **kwargs)

    return BlockingMethod(method, call, "None")


Value = TypeVar("Value")


# ---------------------------------------------------------------- handles


class SyncJobHandle(JobHandle[R], frozen=True, gc=False):
    """A stored job of a `SyncPulse`. `R` is what its handler returns."""

    # The methods of a JobHandle are awaited; these block.

    def result(self, timeout: timedelta | None = None) -> R:  # type: ignore[override]
        """Wait until the job has completed, and return its result. See `JobHandle.result`."""
        return source_of(self).result(self, timeout)  # type: ignore[return-value]

    def wait(self, timeout: timedelta | None = None) -> JobInfo:  # type: ignore[override]
        """Wait until the job has finished, whatever the outcome, and return it. See `JobHandle.wait`."""
        return source_of(self).wait(self, timeout)  # type: ignore[return-value]


class LaterHandle:
    """Stands for the handle of a job that is stored later."""

    def _stored(self) -> SyncJobHandle[Any]:
        """Return the handle. Raises InvalidTransition before the job is stored."""
        raise NotImplementedError


class BlockingSource:
    """Waits for the jobs of one client and one handler, in the event loop of the bridge."""

    def __init__(self, bridge: Bridge, handles: type[JobHandle[Any]], source: HandleSource) -> None:
        self.handles = handles
        """The class of the same handles of the async client."""
        self._bridge = bridge
        self._source = source
        self.warn_in_handler = source.warn_in_handler

    def wait(self, handle: JobHandle[Any], timeout: timedelta | None) -> Any:
        self.warn_in_handler(handle.topic)
        return self._bridge.call(self._source.wait_here, handle, timeout)

    def result(self, handle: JobHandle[Any], timeout: timedelta | None) -> Any:
        self.warn_in_handler(handle.topic)
        return self._bridge.call(self._source.result_here, handle, timeout)


class SyncHandles:
    """Turns handles of the async client into handles of one `SyncPulse`."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._known: dict[type[Any], type[SyncJobHandle[Any]]] = {}

    def of(self, handle: JobHandle[Any]) -> SyncJobHandle[Any]:
        handles = type(handle)
        known = self._known.get(handles)
        if known is None:
            source = source_of(handle)
            assert isinstance(source, HandleSource)
            blocking = BlockingSource(self._bridge, handles, source)
            known = self._known[handles] = handles_of(blocking, SyncJobHandle)
        return known(handle.id, handle.topic, handle.duplicate, handle.replaced, handle.submitted_at)

    def gather(
        self, handles: Iterable[JobHandle[Any]], timeout: timedelta | None, *, return_exceptions: bool
    ) -> list[Any]:
        async def gathered() -> list[Any]:
            return await gather(
                *map(_async_handle, handles), timeout=timeout, return_exceptions=return_exceptions
            )

        return self._bridge.call(gathered)

    def as_completed(
        self, handles: Iterable[SyncJobHandle[Value]], timeout: timedelta | None
    ) -> Generator[SyncJobHandle[Value], None, None]:
        given = list(handles)
        for handle in self._bridge.iterate(as_completed(map(_async_handle, given), timeout=timeout)):
            yield self.of(handle)


def _async_handle(handle: JobHandle[Any] | LaterHandle) -> JobHandle[Any]:
    if isinstance(handle, LaterHandle):
        handle = handle._stored()
    source = source_of(handle) if isinstance(handle, JobHandle) else None
    if not isinstance(source, BlockingSource):
        raise InvalidArgument(f"Give handles of a SyncPulse, as its `enqueue` returns them, not {handle!r}.")
    source.warn_in_handler(handle.topic)
    return source.handles(handle.id, handle.topic, handle.duplicate, handle.replaced, handle.submitted_at)
