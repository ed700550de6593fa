"""The verbs of a handler for steps: `step`, `sleep` and `wait_for`. `Context` has them."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from pulse.errors import SignalTimeout
from pulse.handlers.steps import Steps

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


class StepVerbs:
    """What a handler can do to survive its attempt."""

    __slots__ = ()

    _signals: Mapping[str, Any] | None

    @overload
    def step(
        self,
        name: str,
        function: Callable[Parameters, Awaitable[Value]],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Coroutine[Any, Any, Value]: ...

    @overload
    def step(
        self,
        name: str,
        function: Callable[Parameters, Value],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Coroutine[Any, Any, Value]: ...

    @overload
    def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, index: int, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]: ...

    def step(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a part of the work once: `rows = await ctx.step("fetch", fetch, url)`.

        What the function returns is stored before the handler goes on. A later attempt reads it back and does
        not call the function again. It is read back as the function is annotated, else as plain JSON values,
        in the first attempt too. A function that raises stores nothing. Each name may be used once in an
        attempt; in a loop give an `index` as well. In a `def` handler it blocks, without `await`.
        """
        index = kwargs.pop("index", None)
        steps = self._begin_steps()
        if steps is None:
            return _called(function, args, kwargs)
        return steps.step(_place(), name, function, args, kwargs, index)

    def sleep(self, delay: timedelta, *, name: str | None = None) -> Coroutine[Any, Any, None]:
        """End the attempt, and run the job again after the delay: `await ctx.sleep(timedelta(days=3))`.

        It costs no attempt, needs no slot of a worker, and survives everything. The next attempt starts at
        the top of the handler, and goes on here: put what comes before into steps. Sleeps without a name are
        numbered in the order of their calls. In a `def` handler it is called without `await`.
        """
        steps = self._begin_steps()
        return _nothing() if steps is None else steps.sleep(_place(), delay, name)

    @overload
    def wait_for(
        self, name: str, *, returns: type[Value], timeout: timedelta | None = None, index: int | None = None
    ) -> Coroutine[Any, Any, Value]: ...

    @overload
    def wait_for(
        self, name: str, *, timeout: timedelta | None = None, index: int | None = None
    ) -> Coroutine[Any, Any, Any]: ...

    def wait_for(
        self,
        name: str,
        *,
        timeout: timedelta | None = None,
        index: int | None = None,
        returns: Any = None,
    ) -> Any:
        """Wait for a signal, which `p.signal(job_id, name, value)` sends, and return its value.

        If it has not come, the attempt ends, as with `sleep`. A signal that comes first is kept. Raises
        SignalTimeout if it does not come in time, in every later attempt too. `returns` is the type of the
        value; without it, plain JSON values are returned.
        """
        steps = self._begin_steps()
        if steps is None:
            return _given(self._signals or {}, name)
        return steps.wait_for(_place(), name, timeout, index, returns)

    def _begin_steps(self) -> Steps | None:
        """Return the steps of the attempt; None in a unit test."""
        raise NotImplementedError


def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call the function as a step of a unit test: nothing is stored."""
    if asyncio._get_running_loop() is None:
        return function(*args, **kwargs)

    async def call() -> Any:
        value = function(*args, **kwargs)
        return await value if inspect.isawaitable(value) else value

    return call()


def _given(signals: Mapping[str, Any], name: str) -> Any:
    if name not in signals:
        raise SignalTimeout(f"The signal {name!r} did not come in time.")
    if asyncio._get_running_loop() is None:
        return signals[name]

    async def value() -> Any:
        return signals[name]

    return value()


def _place() -> str:
    """Return where the handler called a verb, as file:line."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


async def _nothing() -> None:
    pass
