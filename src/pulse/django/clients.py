"""The clients of a Django project: one that blocks for all threads, and one for each event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Any, Unpack, cast

from asgiref.sync import SyncToAsync, ThreadSensitiveContext
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from pulse.blocking.bridge import SyncJobHandle
from pulse.blocking.client import SyncPulse
from pulse.client import Pulse
from pulse.django.enqueueing import enqueue, enqueue_many
from pulse.django.settings import Settings, configured
from pulse.errors import InvalidArgument
from pulse.handlers.handler import JobOptions, make_options
from pulse.handlers.registry import CallNext, JobCall
from pulse.jobs.submissions import EnqueueOptions, ManyOptions
from pulse.wire import redirection

# ---------------------------------------------------------------- connections
# Checks and closes the connections to the application's databases around each job, in the thread of the job.
#
# Django does it around each request. A connection that broke between two jobs is replaced at the next query.


def refresh_connections() -> None:
    """Close connections of this thread that are broken or too old. Have the next query check the others.

    Leaves a connection in an atomic block alone: in tests a handler runs in the transaction of its test.
    """
    destination = redirection.current()
    if destination is not None and not destination.runs_workers:
        return  # a look at a connection opens it, which pytest-django refuses in tests without a database
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
            # Whatever CONN_HEALTH_CHECKS is: the connection may have been idle for hours, and a job that
            # fails for that may have no other attempt. It costs a round trip in jobs that query.
            connection.health_check_enabled = True


async def with_fresh_connections(_: JobCall, call_next: CallNext) -> None:
    """Run a handler between two checks of its connections. Middleware of a `DjangoPulse`."""
    if asyncio._get_running_loop() is not None:
        await _in_own_thread(call_next)
        return
    refresh_connections()
    try:
        await call_next()
    finally:
        refresh_connections()


# Threads of async handlers that have ended, with their connections.
_idle: list[Executor] = []


async def _in_own_thread(call_next: CallNext) -> None:
    """Run an async handler, with its queries in a thread for this job alone. ASGI requests do the same.

    Otherwise all async handlers of the process would share one thread and its connection: they would wait for
    each other, and the check of one could close the connection under a cursor of another.
    """
    if SyncToAsync.thread_sensitive_context.get(None) is not None:
        await call_next()  # a test has chosen a thread
        return
    context = ThreadSensitiveContext()
    # Not entered: leaving it would block the event loop until the thread is done. The contextvars end with
    # the job.
    SyncToAsync.thread_sensitive_context.set(context)
    if _idle:
        executor = SyncToAsync.context_to_thread_executor[context] = _idle.pop()
        executor.submit(refresh_connections)
    canceled = False
    try:
        await call_next()
    except asyncio.CancelledError:
        canceled = True
        raise
    finally:
        used = SyncToAsync.context_to_thread_executor.pop(context, None)
        if used is not None:
            given_back = asyncio.wrap_future(used.submit(_give_back, used))
            if not canceled:  # a query of a canceled handler may still run
                # Otherwise the next job of this slot would take one more thread and connection.
                await asyncio.wait([given_back])


def _give_back(executor: Executor) -> None:
    refresh_connections()
    _idle.append(executor)


# ---------------------------------------------------------------- clients


class DjangoPulse(SyncPulse):
    """The client of a Django project. In a transaction, `enqueue` waits for the commit."""

    # Where other processes find it. Importing that module sets Django up.
    _place = ("pulse.django.worker", "app")

    def __init__(self, settings: Settings) -> None:
        super().__init__(**settings.client)
        self._registry.defaults = cast("JobOptions", settings.defaults)
        self.middleware(with_fresh_connections)

    def enqueue(
        self, topic: str, args: object = None, **options: Unpack[EnqueueOptions]
    ) -> SyncJobHandle[Any]:
        """Store a job: after the commit, in the transaction or at once, as PULSE["ENQUEUE"] says."""
        return enqueue(self, super().enqueue, topic, args, options)

    def enqueue_many(
        self, topic: str, items: Iterable[object], **options: Unpack[ManyOptions]
    ) -> list[SyncJobHandle[Any]]:
        """Store a job for each item, when `enqueue` would."""
        return enqueue_many(self, super().enqueue_many, topic, items, options)

    def enqueue_now(
        self, topic: str, args: object = None, **options: Unpack[EnqueueOptions]
    ) -> SyncJobHandle[Any]:
        """Store a job at once, whatever becomes of the transaction."""
        return super().enqueue(topic, args, **options)


_lock = threading.Lock()
_client: DjangoPulse | None = None
_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pulse] = weakref.WeakKeyDictionary()


def client() -> DjangoPulse:
    """Return the client of the project, whose verbs block. The first call makes it. It does not connect."""
    global _client
    with _lock:
        if _client is None:
            settings = configured()
            try:
                make_options(cast("JobOptions", settings.defaults))
            except InvalidArgument as error:
                raise ImproperlyConfigured(f'PULSE["DEFAULTS"] cannot be used: {error.message}') from error
            try:
                _client = DjangoPulse(settings)
            except InvalidArgument as error:
                raise ImproperlyConfigured(f"The setting PULSE cannot be used: {error.message}") from error
        return _client


def aclient() -> Pulse:
    """Return the async client of the running event loop, to read and change jobs.

    It has no handlers, and its `enqueue` does not wait for a commit: `aenqueue(job, …)` does. A process that
    serves ASGI or runs a worker has one event loop. Under WSGI each request has a new one: use `client()`.
    """
    loop = asyncio.get_running_loop()
    found = _by_loop.get(loop)
    if found is None:
        client()  # raises ImproperlyConfigured for settings that cannot be used
        found = _by_loop[loop] = Pulse(**configured().client)
    return found
