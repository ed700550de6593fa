"""Verbs in the thread of a `def` handler block. A coroutine would be lost, and the new job with it.

They return the result in a form that can also be awaited: `return job.enqueue(…)` works too.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, TypeVar, cast

from pulse.client.caller import Caller
from pulse.handlers.thread_calls import current_context
from pulse.models.job_handle import JobHandle

Verb = TypeVar("Verb", bound=Callable[..., Coroutine[Any, Any, Any]])


def blocks_in_handler_threads(verb: Verb) -> Verb:
    """Return the async verb, made to block where a handler runs without an event loop."""
    return _blocking(verb, _done)


def returns_in_handler_threads(verb: Verb) -> Verb:
    """Return the same for a verb whose result may be anything. There it cannot be awaited."""
    return _blocking(verb, lambda result: result)


def _blocking(verb: Verb, done: Callable[[Any], Any]) -> Verb:
    @functools.wraps(verb)
    def call(client: Any, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        coroutine = verb(client, *args, **kwargs)
        # The context first: to ask for the event loop takes a system call.
        if current_context.get(None) is None or asyncio._get_running_loop() is not None:
            return coroutine
        caller: Caller = client._caller
        stored: Coroutine[Any, Any, Any] = done(caller.run_in_thread(coroutine))
        return stored

    # For callers that have an event loop for it: blocking clients.
    call.in_event_loop = verb  # type: ignore[attr-defined]
    return cast("Verb", call)


class _Done:
    """A coroutine that has ended: its result is itself."""

    __slots__ = ()

    def send(self, _: object) -> Any:
        raise StopIteration(self)

    def throw(self, error: BaseException, *_: object) -> Any:
        raise error

    def close(self) -> None:
        pass

    def __await__(self) -> Generator[Any, Any, Any]:
        return self
        yield


class _StoredJobs(_Done, list[JobHandle[Any]]):
    __slots__ = ()


class _Nothing(_Done):
    __slots__ = ()


Coroutine.register(_Nothing)
Coroutine.register(_StoredJobs)


@functools.lru_cache(maxsize=256)
def _stored_job(handles: type[Any]) -> type[Any]:
    """Return the class of handles that can be awaited as well."""
    meta: Any = type(handles)
    named = {"__module__": handles.__module__}
    made: type[Any] = meta("JobHandle", (_Done, handles), named, frozen=True, gc=False)
    Coroutine.register(made)
    return made


def _done(result: JobHandle[Any] | Iterable[JobHandle[Any]] | None) -> Coroutine[Any, Any, Any]:
    if result is None:
        return cast("Coroutine[Any, Any, Any]", _Nothing())
    if isinstance(result, JobHandle):
        stored = _stored_job(type(result))(result.id, result.topic, result.duplicate, result.replaced)
        return cast("Coroutine[Any, Any, Any]", stored)
    return cast("Coroutine[Any, Any, Any]", _StoredJobs(result))
