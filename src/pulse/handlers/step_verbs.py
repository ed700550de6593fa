"""The verbs of a handler for steps: `step`, `sleep`, `wait_for` and `wait_for_any`. `Context` has them."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from pulse.handlers.step_calls import StepCalls
from pulse.handlers.step_names import Signals, check_signals
from pulse.handlers.steps import Steps, awaited
from pulse.v1 import pulse_pb2 as pb

Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


class StepVerbs:
    """The verbs of a handler whose effects outlive its attempt."""

    __slots__ = ("_steps",)

    _assignment: pb.JobAssignment
    _cancelled: bool
    _completes_in_transaction: bool
    _steps: Steps | StepCalls | GivenSignals

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

        The result of the function is stored before the handler continues. A later attempt reads it
        back and does not call the function again. The result is decoded to the annotated return
        type, else to plain JSON values, in the first attempt too. A function that raises stores
        nothing. Each name may be used once in an attempt; in a loop give an `index` as well. In a
        `def` handler it blocks, without `await`.
        """
        index = kwargs.pop("index", None)
        return self._begin_steps().step(_place(), name, function, args, kwargs, index)

    def sleep(self, delay: timedelta, *, name: str | None = None) -> Coroutine[Any, Any, None]:
        """End the attempt, and run the job again after the delay: `await ctx.sleep(timedelta(days=3))`.

        It costs no attempt, needs no slot of a worker, and survives restarts. The next attempt
        starts at the top of the handler: put the work before the sleep into steps. Sleeps without a
        name are numbered in the order of their calls. In a `def` handler it is called without
        `await`.
        """
        waiting: Coroutine[Any, Any, None] = self._begin_steps().sleep(_place(), delay, name)
        return waiting

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
        signals = check_signals((name,), is_any=False)
        return self._begin_steps().wait_for(_place(), signals, timeout, index, returns)

    @overload
    def wait_for_any(
        self, *names: str, returns: type[Value], timeout: timedelta | None = None, index: int | None = None
    ) -> Coroutine[Any, Any, tuple[str, Value]]: ...

    @overload
    def wait_for_any(
        self, *names: str, timeout: timedelta | None = None, index: int | None = None
    ) -> Coroutine[Any, Any, tuple[str, Any]]: ...

    def wait_for_any(
        self,
        *names: str,
        timeout: timedelta | None = None,
        index: int | None = None,
        returns: Any = None,
    ) -> Any:
        """Wait for one of several signals: `name, value = await ctx.wait_for_any("approved", "rejected")`.

        Returns the name and the value of the signal that was sent first. Other signals are kept for
        a later wait. The rest is as for `wait_for`.
        """
        signals = check_signals(names, is_any=True)
        return self._begin_steps().wait_for(_place(), signals, timeout, index, returns)

    def _begin_steps(self) -> Steps | GivenSignals:
        """Return the steps of the attempt. They are made when its handler uses a verb for the first time."""
        steps = self._steps
        if isinstance(steps, StepCalls):
            steps = self._steps = Steps(
                steps, self._assignment, lambda: self._cancelled, lambda: self._completes_in_transaction
            )
        return steps


class GivenSignals:
    """The steps of a unit test: they run at once and nothing is stored; its signals are given."""

    def __init__(self, signals: Mapping[str, Any]) -> None:
        self._signals = signals

    def step(
        self,
        _place: str,
        _name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        _index: int | None,
    ) -> Any:
        """Call the function."""
        value = function(*args, **kwargs)
        if not inspect.isawaitable(value):
            return returned(value)
        return asyncio.run(awaited(value)) if asyncio._get_running_loop() is None else value

    def sleep(self, _place: str, _delay: timedelta, _name: str | None) -> Any:
        """Return at once."""
        return returned(None)

    def wait_for(
        self, _place: str, signals: Signals, _timeout: timedelta | None, _index: int | None, _returns: Any
    ) -> Any:
        """Return the first given signal that has one of the names."""
        for name, value in self._signals.items():
            if name in signals.names:
                return returned((name, value) if signals.is_any else value)
        raise signals.timed_out()


NO_SIGNALS = GivenSignals({})


def returned(value: Any) -> Any:
    """Return the value, or in an event loop a coroutine that returns it."""
    return value if asyncio._get_running_loop() is None else _after_await(value)


async def _after_await(value: Any) -> Any:
    return value


def _place() -> str:
    """Return where the handler called a verb, as file:line."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
