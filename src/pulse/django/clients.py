"""The clients of a Django project: one that blocks for all threads, and one for each event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterable
from typing import Any, Unpack, cast

from django.core.exceptions import ImproperlyConfigured

from pulse.blocking.client import SyncPulse
from pulse.blocking.handles import SyncJobHandle
from pulse.client.client import Pulse
from pulse.client.options import EnqueueOptions, ManyOptions
from pulse.django.connections import with_fresh_connections
from pulse.django.enqueueing import enqueue, enqueue_many
from pulse.django.settings import Settings, configured
from pulse.errors import InvalidArgument
from pulse.handlers.options import JobOptions, make_options


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
