"""The verbs for middleware and resources, and middleware around enqueue."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from pulse.errors import InvalidArgument, InvalidMiddleware
from pulse.handlers.handler import qualified_name
from pulse.handlers.middleware import Middleware
from pulse.handlers.registry import Registry
from pulse.handlers.signatures import is_coroutine_function
from pulse.jobs.submissions import check_priority
from pulse.v1 import pulse_pb2 as pb

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Enqueue:
    """An enqueue that is about to be sent: one job, or all of an `enqueue_many`."""

    topic: str
    payloads: Sequence[bytes]
    """The encoded arguments, one for each job."""
    metadata: dict[str, str]
    """The metadata of all jobs. Entries may be added, changed and removed."""
    priority: int
    """The priority of all jobs. May be changed."""


EnqueueMiddleware: TypeAlias = Callable[[Enqueue, Callable[[], Any]], Any]
"""`async def (enqueue, call_next)`; a plain function of the same for a `SyncPulse`."""


def check_async(middleware: object) -> None:
    """Raise InvalidMiddleware unless this can surround the enqueues of a `Pulse`."""
    if not callable(middleware) or not is_coroutine_function(middleware):
        raise InvalidMiddleware(
            f"Middleware of enqueue has to be `async def (enqueue, call_next)`, not {middleware!r}. "
            "Plain functions are for a SyncPulse."
        )


async def surround(
    chain: Sequence[EnqueueMiddleware],
    requests: Sequence[pb.SubmitJobRequest],
    payloads: Sequence[bytes],
    send: Callable[[], Coroutine[Any, Any, Answer]],
) -> Answer:
    """Send the jobs through the middleware. Returns the answer of the server, or raises.

    All requests have the metadata and the priority of the first.
    """
    first = requests[0]
    enqueue = Enqueue(first.topic, payloads, dict(first.metadata), first.priority)
    given = replace(enqueue, metadata=dict(first.metadata))

    async def apply_and_send() -> Answer:
        nonlocal given
        changes_of(given, enqueue).apply_to_requests(requests)
        given = replace(enqueue, metadata=dict(enqueue.metadata))  # for a further call
        return await send()

    return await _through(chain, enqueue, apply_and_send)


async def surround_topics(
    chain: Sequence[EnqueueMiddleware],
    topics: Sequence[Sequence[pb.SubmitJobRequest]],
    send: Callable[[], Coroutine[Any, Any, Answer]],
) -> Answer:
    """Send the jobs of several topics together: through the middleware once for each topic."""
    if not chain or not topics:
        return await send()
    requests, *others = topics
    payloads = [request.payload for request in requests]

    async def send_others() -> Answer:
        # In a task, which has a stack of its own: a hundred topics would reach the recursion limit.
        return await asyncio.create_task(surround_topics(chain, others, send))

    return await surround(chain, requests, payloads, send_others if others else send)


async def _through(
    chain: Sequence[EnqueueMiddleware], enqueue: Enqueue, send: Callable[[], Coroutine[Any, Any, Answer]]
) -> Answer:
    if not chain:
        return await send()
    answers: list[Answer] = []

    async def call_next() -> Answer:
        answers.append(await _through(chain[1:], enqueue, send))
        return answers[-1]

    await chain[0](enqueue, call_next)
    return answered(answers, chain[0])


def answered(answers: list[Answer], middleware: EnqueueMiddleware) -> Answer:
    """Return the answer of the server, whatever the middleware returned. Raises if there is none."""
    if not answers:
        raise InvalidMiddleware(
            f"The middleware {qualified_name(middleware)} returned, and the jobs are not known to be stored. "
            "Call `call_next()` and, if it is async, await it; raise an error to refuse the jobs."
        )
    return answers[-1]


@dataclass(frozen=True, slots=True)
class Changes:
    """What middleware changed. The rest stays: items of an `enqueue_many` may have values of their own."""

    removed: frozenset[str]
    added: dict[str, str]
    priority: int | None

    def apply_to_requests(self, requests: Sequence[pb.SubmitJobRequest]) -> None:
        """Change the requests."""
        for request in requests:
            for key in self.removed & request.metadata.keys():
                del request.metadata[key]
            for key, value in self.added.items():
                request.metadata[key] = value
            if self.priority is not None:
                request.priority = self.priority

    def apply_to(self, enqueue: Enqueue) -> None:
        """Change the enqueue in the same way."""
        for key in self.removed:
            enqueue.metadata.pop(key, None)
        enqueue.metadata.update(self.added)
        if self.priority is not None:
            enqueue.priority = self.priority


def changes_of(given: Enqueue, enqueue: Enqueue) -> Changes:
    """Return the changes of the middleware. Raises InvalidArgument for unusable values."""
    before, after, priority = given.metadata, enqueue.metadata, enqueue.priority
    if not isinstance(after, dict):
        raise InvalidArgument(
            f"Middleware set the metadata of the jobs to {after!r}: it has to be a dictionary."
        )
    added = {key: value for key, value in after.items() if before.get(key) != value}
    for key, value in added.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise InvalidArgument(
                "Middleware set metadata that cannot be sent: it maps strings to strings, but "
                f"{key!r} has {value!r}."
            )
    try:
        check_priority(priority)
    except InvalidArgument as error:
        raise InvalidArgument(f"Middleware set a priority that cannot be sent: {error.message}") from None
    return Changes(
        removed=frozenset(before.keys() - after.keys()),
        added=added,
        priority=priority if priority != given.priority else None,
    )


M = TypeVar("M", bound=Middleware)
E = TypeVar("E", bound=EnqueueMiddleware)
F = TypeVar("F", bound=Callable[..., Any])


class AroundVerbs:
    """The verbs of a `Pulse` that add code around handlers and enqueues."""

    _registry: Registry
    _enqueue_middleware: list[EnqueueMiddleware]

    def middleware(self, function: M, /) -> M:
        """Run this function around every handler: `async def (call, call_next)`. For use as a decorator.

        It runs where the handler runs: in the event loop, in the thread of a sync handler, or in the child
        process. The first one registered is the outermost. An error that it raises is the outcome
        of the attempt; an error that it suppresses makes the job a success. A plain function serves
        sync handlers only. `call_next()` has to run, unless the middleware raises or calls
        `call.skip()`.
        """
        self._registry.surroundings.add_middleware(function)
        return function

    def enqueue_middleware(self, function: E, /) -> E:
        """Run this function around every enqueue: `async def (enqueue, call_next)`. For use as a decorator.

        It can add metadata, change the priority, or raise to refuse the jobs. The first one registered is
        the outermost. Jobs that schedules fire are made by the server and do not pass it.
        """
        check_async(function)
        self._enqueue_middleware.append(function)
        return function

    def resource(self, factory: F, /) -> F:
        """Open this once for each worker process, before its first job. For use as a decorator.

        `factory` is a function that yields the resource, sync or async, or returns a context manager, or is
        the class of one. Code after the `yield` closes it, after the last handler. A handler takes it in a
        parameter of its type, `db: Database = pulse.INJECTED`, or reads `ctx.state[Database]`. Its own
        parameters are resources that were registered before.
        """
        self._registry.surroundings.add_resource(factory, sys._getframe(1).f_locals)
        return factory
