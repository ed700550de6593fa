"""Middleware around the enqueues of a `SyncPulse`. It runs in the thread of the caller.

A contextvar carries its changes to the client's event loop, which applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from pulse.client.enqueue_middleware import (
    Changes,
    Enqueue,
    EnqueueMiddleware,
    answered,
    changes_of,
)
from pulse.errors import InvalidMiddleware
from pulse.handlers.signatures import is_coroutine_function

Answer = TypeVar("Answer")
_changes: ContextVar[Changes | None] = ContextVar("pulse.enqueue_changes", default=None)


def check_sync(middleware: object) -> None:
    """Raise InvalidMiddleware unless this can surround the enqueues of a `SyncPulse`."""
    if not callable(middleware) or is_coroutine_function(middleware):
        raise InvalidMiddleware(
            "Middleware of enqueue has to be a plain function of (enqueue, call_next) for a SyncPulse, but "
            f"{middleware!r} was given. Async functions are for a Pulse."
        )


def surround_blocking(
    chain: Sequence[EnqueueMiddleware], enqueue: Enqueue, send: Callable[[], Answer]
) -> Answer:
    """Send the jobs through the middleware. Returns the answer of the server, or raises."""
    given = Enqueue(enqueue.topic, enqueue.payloads, dict(enqueue.metadata), enqueue.priority)

    def apply_and_send() -> Answer:
        before = _changes.set(changes_of(given, enqueue))
        try:
            return send()
        finally:
            _changes.reset(before)

    return _through(chain, enqueue, apply_and_send)


async def apply_changes(enqueue: Enqueue, call_next: Callable[[], Any]) -> None:
    """Middleware of the async client: makes the changes that were made in the thread of the caller."""
    if (changes := _changes.get()) is not None:
        changes.apply_to(enqueue)
    await call_next()


def _through(chain: Sequence[EnqueueMiddleware], enqueue: Enqueue, send: Callable[[], Answer]) -> Answer:
    if not chain:
        return send()
    answers: list[Answer] = []

    def call_next() -> Answer:
        answers.append(_through(chain[1:], enqueue, send))
        return answers[-1]

    chain[0](enqueue, call_next)
    return answered(answers, chain[0])
