"""The verbs for what surrounds handlers and enqueues: middleware and resources."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from pulse.client.enqueue_middleware import EnqueueMiddleware, check_async
from pulse.handlers.middleware import Middleware
from pulse.handlers.registry import Registry

M = TypeVar("M", bound=Middleware)
E = TypeVar("E", bound=EnqueueMiddleware)
F = TypeVar("F", bound=Callable[..., Any])


class AroundVerbs:
    """What a `Pulse` can do around handlers and enqueues."""

    _registry: Registry
    _enqueue_middleware: list[EnqueueMiddleware]

    def middleware(self, function: M, /) -> M:
        """Run this function around every handler: `async def (call, call_next)`. For use as a decorator.

        It runs where the handler runs: in the event loop, in the thread of a sync handler, or in the child
        process. The first one registered is the outermost. What it raises is the outcome of the attempt, and
        an error that it does not raise again makes the job a success. A plain function serves sync handlers
        only. `call_next()` has to run, unless the middleware raises or calls `call.skip()`.
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
