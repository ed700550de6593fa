"""The application under test: its handlers and schedules, and where its code runs.

They are those of all clients in the process. Async handlers run in an event loop, `def` handlers in the
thread of the test, so that they see the transaction of the test. No event loop may run there meanwhile:
Django refuses its ORM in one, and a blocking client would block it.
"""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from pulse.client import existing_clients
from pulse.errors import ClientClosed
from pulse.handlers.handler import NO_OPTIONS, Handler, full_name
from pulse.handlers.registry import Registry
from pulse.schedules import Declarations

Result = TypeVar("Result")

_Calls = queue.SimpleQueue[Callable[[], None] | None]

# The calls for the thread of the test, while it waits for a coroutine.
_calls: ContextVar[_Calls | None] = ContextVar("pulse.testing.calls", default=None)


def run(verb: str, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Run the coroutine for a test without an event loop, and block until it is done."""
    if asyncio._get_running_loop() is not None:
        raise ClientClosed(
            f"pulse_kit.{verb}() would block the running event loop: write `await pulse_kit.a{verb}()`."
        )
    returned: list[Result] = []
    raised: list[BaseException] = []

    async def caught() -> None:
        # Not through the event loop: sys.exit() of a handler would end it.
        try:
            returned.append(await make())
        except BaseException as error:
            raised.append(error)

    if uses_django():
        from asgiref.sync import async_to_sync

        # sync_to_async of a handler then comes back to this thread.
        async_to_sync(caught)()
    else:
        _loop_thread().run(caught())
    if raised:
        raise raised[0]
    return returned[0]


async def in_test_thread(function: Callable[[], None]) -> None:
    """Call a function that never raises. A test without an event loop runs it in its own thread."""
    if (calls := _calls.get()) is not None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def call() -> None:
            try:
                function()
            finally:
                loop.call_soon_threadsafe(done.set)

        calls.put(call)
        await done.wait()
    elif uses_django():
        from asgiref.sync import sync_to_async

        await sync_to_async(function, thread_sensitive=True)()
    else:
        await asyncio.to_thread(function)


def uses_django() -> bool:
    """Whether this process has loaded Django's database layer."""
    return "django.db" in sys.modules


class HandlerLoop:
    """An event loop in a thread, for all tests of the process that have none."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="pulse-kit", daemon=True).start()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine, and calls for this thread, until the coroutine is done."""
        calls: _Calls = queue.SimpleQueue()
        token = _calls.set(calls)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        finally:
            _calls.reset(token)
        future.add_done_callback(lambda _: calls.put(None))
        try:
            while (call := calls.get()) is not None:
                call()
        except BaseException:
            future.cancel()
            raise
        future.result()


_thread: HandlerLoop | None = None


def _loop_thread() -> HandlerLoop:
    global _thread
    if _thread is None or _thread.process != os.getpid():  # a forked child does not have the thread
        _thread = HandlerLoop()
    return _thread


class Served(NamedTuple):
    """A handler, and the client that has it."""

    client: Any
    handler: Handler


class Known(NamedTuple):
    """What a kit has to know of the handlers of a client, without a reference to them."""

    size: int
    topics: frozenset[str]
    with_options: tuple[str, ...]
    """The topics of handlers with options, which the kit declares."""
    have_resources: bool


# For all kits of the process: an application with many handlers must not pay for each in every test.
_known: weakref.WeakKeyDictionary[Any, Known] = weakref.WeakKeyDictionary()


class Handlers:
    """Finds handlers by topic. Clients and handlers may come at any time."""

    def __init__(self, clients: tuple[Any, ...]) -> None:
        """Without `clients`, all clients of the process count."""
        self._clients = clients

    def use(self, clients: tuple[Any, ...]) -> None:
        """Take the handlers and schedules of these clients from now on."""
        self._clients = clients

    @property
    def clients(self) -> list[Any]:
        return list(self._clients) or existing_clients()

    def topics(self) -> frozenset[str]:
        """Return the topics that have a handler."""
        return frozenset().union(*(self.known(client).topics for client in self.clients))

    def known(self, client: Any) -> Known:
        """Return what is known of the client's handlers: these are all that it has now."""
        known = _known.get(client)
        if known is None or known.size != len(client._registry):
            handlers = self.of(client)
            known = _known[client] = Known(
                len(client._registry),
                frozenset(handler.topic for handler in handlers),
                tuple(handler.topic for handler in handlers if handler.options is not NO_OPTIONS),
                any(handler.resources for handler in handlers),
            )
        return known

    def find(self, topic: str) -> Served:
        """Return the handler of the topic. Raises AssertionError unless there is exactly one."""
        found = self._all(topic)
        if len(found) == 1:
            return found[0]
        if not found:
            raise AssertionError(
                f"No client of this process has a handler for {topic!r}: import the module that registers it."
            )
        names = " and ".join(sorted(full_name(served.handler.function) for served in found))
        raise AssertionError(
            f"{len(found)} clients have a handler for {topic!r}: {names}. Choose a client with "
            "pulse_kit.use(client)."
        )

    def look_for(self, topic: str) -> Served | None:
        """Return the handler of the topic, if there is exactly one."""
        found = self._all(topic)
        return found[0] if len(found) == 1 else None

    def _all(self, topic: str) -> list[Served]:
        if len(self._now(topic)) > 1:
            gc.collect()  # clients of earlier tests may wait to be collected
        return self._now(topic)

    def _now(self, topic: str) -> list[Served]:
        every = [(client, registry_of(client).get(topic)) for client in self.clients]
        return [Served(client, handler) for client, handler in every if handler is not None]

    def of(self, client: Any) -> list[Handler]:
        """Return all handlers of the client."""
        registry = registry_of(client)
        return [handler for topic in registry if (handler := registry.get(topic)) is not None]

    def schedules(self) -> Iterator[Any]:
        """Yield the schedules that the clients declare."""
        for client in self.clients:
            declared: Declarations = getattr(client, "_async", client)._declarations
            yield from declared


def registry_of(client: Any) -> Registry:
    registry: Registry = client._registry
    return registry
