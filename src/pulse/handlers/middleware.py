"""Middleware: functions around handlers. They run where the handler runs, in the order of registration.

The chain is composed once for each handler. A handler without middleware pays nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from pulse.errors import InvalidMiddleware
from pulse.handlers.calls import Call
from pulse.handlers.context import Context, steps_of
from pulse.handlers.handler import Handler, qualified_name
from pulse.handlers.signatures import is_coroutine_function, takes
from pulse.handlers.step_names import AT_THE_START


@dataclass(slots=True)
class JobCall:
    """A call of a handler, as its middleware sees it."""

    context: Context
    arguments: Any
    """The document that the handler takes, or a dict of its parameters by name. May be replaced."""
    function: Callable[..., Any]
    """The handler's function. `call_next()` calls it."""
    is_skipped: bool = False
    """Whether `skip` was called."""

    def skip(self) -> None:
        """Complete the job without its handler. Return after it, without calling `call_next()`."""
        self.is_skipped = True


class CallNext(Protocol):
    """Runs the next middleware, at last the handler. Returns the handler's result, or raises."""

    def __call__(self) -> Any: ...


Middleware: TypeAlias = Callable[[JobCall, CallNext], Any]
"""`async def (call, call_next)`, or for sync handlers a plain function of the same."""

_AsyncRun = Callable[[JobCall], Coroutine[Any, Any, Any]]
_SyncRun = Callable[[JobCall], Any]


def check_middleware(middleware: object) -> None:
    """Raise InvalidMiddleware if this cannot be middleware: every job would fail."""
    if not callable(middleware):
        raise InvalidMiddleware(
            f"Middleware has to be a function of (call, call_next), but {middleware!r} was given."
        )
    if inspect.isclass(middleware):
        raise InvalidMiddleware(
            f"Middleware is a function of (call, call_next), but {qualified_name(middleware)} is a class. "
            "Give an object of it."
        )
    if inspect.isasyncgenfunction(middleware) or inspect.isgeneratorfunction(middleware):
        raise InvalidMiddleware(
            f"The middleware {qualified_name(middleware)} has a `yield`: write `await call_next()` instead."
        )
    if not takes(middleware, None, None):
        raise InvalidMiddleware(
            f"The middleware {qualified_name(middleware)} cannot be called with (call, call_next)."
        )


def surrounded(handler: Handler, call: Call, chain: Sequence[Middleware]) -> Call:
    """Return the call inside this middleware, the first one outermost.

    Raises InvalidMiddleware for a plain function around an async handler, which it could not wait for.
    """
    if not chain:
        return call
    if handler.is_async:
        return _around_async(handler, call, chain)
    return _around_sync(handler, call, chain)


# ---------------------------------------------------------------- async handlers, in the event loop


def _around_async(handler: Handler, call: Call, chain: Sequence[Middleware]) -> Call:
    async def innermost(job: JobCall) -> Any:
        return await call(job.arguments, job.context)

    run: _AsyncRun = innermost
    for middleware in reversed(chain):
        if not is_coroutine_function(middleware):
            raise InvalidMiddleware(
                f"The middleware {qualified_name(middleware)} is a plain function, and the handler for "
                f"{handler.topic!r} is async: make the middleware `async def`. It then works around both."
            )
        run = _async_layer(middleware, run)
    function = handler.function
    return lambda arguments, context: run(JobCall(context, arguments, function))


def _async_layer(middleware: Middleware, inner: _AsyncRun) -> _AsyncRun:
    async def layer(job: JobCall) -> Any:
        following = _AsyncNext(inner, job)
        await middleware(job, following)
        return following.outcome(middleware)

    return layer


# ---------------------------------------------------------------- sync handlers, in a thread


def _around_sync(handler: Handler, call: Call, chain: Sequence[Middleware]) -> Call:
    def innermost(job: JobCall) -> Any:
        return call(job.arguments, job.context)

    run: _SyncRun = innermost
    for middleware in reversed(chain):
        layer = _stepped_layer if is_coroutine_function(middleware) else _sync_layer
        run = layer(middleware, run)
    function = handler.function
    return lambda arguments, context: run(JobCall(context, arguments, function))


def _sync_layer(middleware: Middleware, inner: _SyncRun) -> _SyncRun:
    def layer(job: JobCall) -> Any:
        following = _SyncNext(inner, job)
        middleware(job, following)
        return following.outcome(middleware)

    return layer


def _stepped_layer(middleware: Middleware, inner: _SyncRun) -> _SyncRun:
    """Run async middleware in a thread, where no event loop runs: all it may await is `call_next()`."""

    def layer(job: JobCall) -> Any:
        following = _SteppedNext(inner, job)
        coroutine = middleware(job, following)
        is_done = False
        try:
            coroutine.send(None)
        except StopIteration:
            is_done = True
        except RuntimeError as error:
            if str(error) == "no running event loop" and error is not following.raised:
                raise _awaits_in_thread(middleware, job) from error
            raise
        if is_done:
            return following.outcome(middleware)
        coroutine.close()
        raise _awaits_in_thread(middleware, job)

    return layer


def _awaits_in_thread(middleware: Middleware, job: JobCall) -> InvalidMiddleware:
    return InvalidMiddleware(
        f"The middleware {qualified_name(middleware)} awaits more than call_next() around the handler for "
        f"{job.context.topic!r}, which runs in a thread without an event loop. Make the handler `async def`, "
        "or use blocking calls in the middleware."
    )


# ---------------------------------------------------------------- call_next


class _Next:
    """What `call_next` is: it records whether it was called, and whether the handler is done."""

    __slots__ = ("_inner", "_is_over", "_is_started", "_job", "_mark", "_result")

    def __init__(self, inner: Callable[[JobCall], Any], job: JobCall) -> None:
        self._inner = inner
        self._job = job
        self._is_started = self._is_over = False
        self._mark = AT_THE_START
        self._result: Any = None

    def _begin(self) -> None:
        """Record the call. A repeated call goes through the stored steps again."""
        steps = steps_of(self._job.context)
        if steps is not None:
            if self._is_started:
                steps.rewind(self._mark)
            else:
                self._mark = steps.mark()
        self._is_started, self._is_over = True, False

    def outcome(self, middleware: Middleware) -> Any:
        """Return the handler's result. Raises if the middleware may have lost the outcome."""
        if self._is_over or (self._job.is_skipped and not self._is_started):
            return self._result
        name = qualified_name(middleware)
        if self._is_started:
            raise InvalidMiddleware(
                f"The middleware {name} returned before the handler was done: write `await call_next()`."
            )
        raise InvalidMiddleware(
            f"The middleware {name} returned without running the handler. Call `call_next()` and, if it is "
            "async, await it; raise an error; or call `call.skip()` to complete the job without its handler."
        )


class _AsyncNext(_Next):
    __slots__ = ()

    async def __call__(self) -> Any:
        self._begin()
        try:
            self._result = await self._inner(self._job)
        finally:
            self._is_over = True
        return self._result


class _SyncNext(_Next):
    __slots__ = ()

    def __call__(self) -> Any:
        self._begin()
        try:
            self._result = self._inner(self._job)
        finally:
            self._is_over = True
        return self._result


class _SteppedNext(_SyncNext):
    __slots__ = ("raised",)

    raised: BaseException | None
    """The last error of the handler, or of middleware around it."""

    def __init__(self, inner: Callable[[JobCall], Any], job: JobCall) -> None:
        super().__init__(inner, job)
        self.raised = None

    async def __call__(self) -> Any:
        try:
            return super().__call__()
        except BaseException as error:
            self.raised = error
            raise
