"""Middleware around the enqueues of a `SyncPulse`. It runs in the thread of the caller.

A contextvar carries its changes to the client's event loop, which applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

from pulse.errors import InvalidArgument, InvalidMiddleware
from pulse.handlers.registry import Changes, Enqueue, EnqueueMiddleware, answered, changes_of
from pulse.handlers.signatures import is_coroutine_function
from pulse.v1 import pulse_pb2 as pb

Answer = TypeVar("Answer")
# The calls for the topics of a workflow are nested. Some ten frames each stay below Python's limit of 1,000.
_MOST_CALLS = 80
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


def surround_topics_blocking(
    chain: Sequence[EnqueueMiddleware],
    topics: Sequence[Sequence[pb.SubmitJobRequest]],
    send: Callable[[], Answer],
) -> Answer:
    """Send the jobs of several topics together: through the middleware once for each topic.

    Raises InvalidArgument for more topics than the stack of a thread allows.
    """
    if len(chain) * len(topics) > _MOST_CALLS:
        raise InvalidArgument(
            f"These jobs have {len(topics)} topics, and a SyncPulse has room for {_MOST_CALLS} calls of its "
            "middleware of enqueue at once: use a Pulse, or split the workflow."
        )
    if not chain or not topics:
        return send()
    requests, *others = topics
    first = requests[0]
    payloads = [request.payload for request in requests]
    enqueue = Enqueue(first.topic, payloads, dict(first.metadata), first.priority)

    def apply_and_send() -> Answer:
        given = Enqueue(first.topic, payloads, dict(first.metadata), first.priority)
        changes_of(given, enqueue).apply_to_requests(requests)
        return surround_topics_blocking(chain, others, send)

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
