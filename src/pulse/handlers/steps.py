"""The steps of an attempt: runs and stores them, sleeps, and waits for signals.

The verbs of `Context` come here: `step`, `sleep`, `wait_for` and `wait_for_any`. In an event loop they return
coroutines; in the thread of a `def` handler they block.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from pulse.errors import (
    InvalidArgument,
    InvalidTransition,
    NotFound,
    PulseError,
    ResourceExhausted,
)
from pulse.handlers.step_calls import (
    Mark,
    Signals,
    StepCalls,
    StepNames,
    check_signals,
    decoder_of,
    encode_step,
    until_answered,
)
from pulse.messages import check_duration, check_timedelta
from pulse.outcomes import Cancelled, Discard, Suspension
from pulse.v1 import pulse_pb2 as pb

Answer = TypeVar("Answer")

# The step that runs, in its own task or thread.
_in_step: ContextVar[str] = ContextVar("pulse.step", default="")


class Steps:
    """The steps of one attempt. Made when its handler uses a verb for the first time."""

    def __init__(
        self,
        calls: StepCalls,
        assignment: pb.JobAssignment,
        is_cancelled: Callable[[], bool],
        is_completing: Callable[[], bool],
    ) -> None:
        """`is_completing` is true once the handler has called `ctx.complete`."""
        self._calls = calls
        self._job_id = assignment.job_id
        self._claim = pb.Claim(job_id=assignment.job_id, attempt=assignment.attempt, run=assignment.run)
        self._is_cancelled = is_cancelled
        self._is_completing = is_completing
        # A first run has no steps, and most others are sent with theirs: nothing is read for them.
        self._known: dict[str, pb.StepView] | None = None
        if (assignment.run or assignment.attempt) == 1 or assignment.HasField("steps"):
            self._known = {step.name: step for step in assignment.steps.steps}
        self._reading: asyncio.Lock | None = None
        self._names = StepNames()
        self.mark = self._names.mark
        self._running = 0
        self.suspension: Suspension | None = None
        """Set once the handler was suspended. It must not return after that."""
        self.is_lost = False
        """Whether the server has refused a call: the claim no longer holds."""

    @property
    def worker_id(self) -> str:
        return self._calls.worker_id

    @property
    def completion_key(self) -> pb.CompletionKey:
        return self._calls.completion_key

    @property
    def calls(self) -> StepCalls:
        return self._calls

    def forgotten(self) -> list[str]:
        """Return the stored steps that this attempt did not ask for."""
        return [name for name in self._known or {} if not self._names.has_asked_for(name)]

    def rewind(self, mark: Mark) -> None:
        """Run the handler again in this attempt: steps stored since the mark are read back."""
        self._names.rewind(mark)
        self._known = None

    # ------------------------------------------------------------ verbs

    def step(
        self,
        place: str,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        index: int | None,
    ) -> Any:
        """Run the function, or read back its result from an earlier attempt."""
        if not callable(function):
            raise InvalidArgument(
                f"ctx.step({name!r}, …) takes a function and its arguments, not {type(function).__name__}: "
                "give the function itself, without calling it."
            )
        self._check_may_begin(place, name)
        own = self._names.take(place, name, index)
        if _is_in_event_loop():
            return self._step(own, function, args, kwargs)
        return self._step_in_thread(own, function, args, kwargs)

    def sleep(self, place: str, delay: timedelta, name: str | None) -> Any:
        """Suspend the attempt, unless the sleep is over."""
        check_timedelta("ctx.sleep(delay)", delay, example="days=3")
        _refuse_in_step("ctx.sleep()", place)
        self._check_may_begin(place, name or "sleep")
        own = self._names.take_sleep(place) if name is None else self._names.take(place, name, None)
        return self._run(self._sleep(own, delay))

    def wait_for(
        self, place: str, signals: Signals, timeout: timedelta | None, index: int | None, returns: Any
    ) -> Any:
        """Return the value of the signal, or suspend the attempt. `wait_for_any` adds the name."""
        _refuse_in_step(signals.verb, place)
        if timeout is not None:
            check_duration("wait_for(timeout=…)", timeout, may_be_zero=True)
        self._check_may_begin(place, signals.step)
        own = self._names.take(place, signals.step, index)
        return self._run(self._wait(own, signals, timeout, returns))

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return coroutine if _is_in_event_loop() else self._calls.block(coroutine)

    def _check_may_begin(self, place: str, name: str) -> None:
        if not self._calls.most_bytes:
            raise PulseError("This version of pulsed does not know steps, sleeps and signals: upgrade it.")
        if self.suspension is not None:
            raise InvalidArgument(
                f"Step {name!r} at {place} comes after {self.suspension.what}, which has ended this attempt. "
                "Do not catch BaseException around it."
            )

    # ------------------------------------------------------------ a step

    async def _step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        decode = decoder_of(function)
        known = await self._stored(name, "step")
        if known is not None:
            return decode(known.value)
        self._running += 1
        outer = _in_step.get()
        _in_step.set(name)
        try:
            began = time.monotonic()
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
            return decode(await self._store(name, function, value, time.monotonic() - began))
        finally:
            self._running -= 1
            _in_step.set(outer)

    def _step_in_thread(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        block, decode = self._calls.block, decoder_of(function)
        # The usual case costs no way to the event loop and back.
        known = None if self._known == {} else block(self._stored(name, "step"))
        if known is not None:
            return decode(known.value)
        began = time.monotonic()
        outer = _in_step.get()
        _in_step.set(name)
        try:
            value = function(*args, **kwargs)
            if inspect.isawaitable(value):
                value = block(awaited(value))
        finally:
            _in_step.set(outer)
        return decode(block(self._store(name, function, value, time.monotonic() - began)))

    async def _store(self, name: str, function: Callable[..., Any], value: object, seconds: float) -> bytes:
        """Store the value. Returns the stored bytes: of an earlier call, if its answer was lost."""
        data = encode_step(name, function, value, self._calls.most_bytes)
        step = pb.NewStep(claim=self._claim, name=name, value=data)
        step.ran.FromNanoseconds(int(seconds * 1e9))
        known = await self._ask(lambda: self._calls.store_step(step))
        if known is None:
            return data
        self._check_kind(known, "step")
        return known.value

    # ------------------------------------------------------------ sleeps and signals

    async def _sleep(self, name: str, delay: timedelta) -> None:
        known = await self._stored(name, "sleep")
        if (known is not None and known.due) or (known is None and delay <= timedelta(0)):
            return
        await self._suspend(Suspension(name, "", delay))

    async def _wait(self, name: str, signals: Signals, timeout: timedelta | None, returns: Any) -> Any:
        decode = decoder_of(returns, is_type=True)
        step = await self._stored(name, "signal")
        if step is None or not step.HasField("stored_at"):
            request = pb.TakeSignalRequest(
                worker_id=self._calls.worker_id, claim=self._claim, step=name, signal=signals.lines
            )
            response = await self._ask(lambda: self._calls.take_signal(request))
            if not response.HasField("step"):
                await self._suspend(Suspension(name, signals.lines, timeout))
            step = response.step
            self._check_kind(step, "signal")
        if step.timed_out:
            raise signals.timed_out()
        value = decode(step.value)
        return (step.signal, value) if signals.is_any else value

    async def _suspend(self, suspension: Suspension) -> None:
        """End the attempt. Steps that run beside this one are stored first: they would be lost."""
        while self._running:  # noqa: ASYNC110 - rare, and every step ends in its own way
            await asyncio.sleep(0.01)
        if self.suspension is None:
            self.suspension = suspension
        raise self.suspension

    # ------------------------------------------------------------ stored steps

    async def _stored(self, name: str, kind: str) -> pb.StepView | None:
        known = self._known
        if known is None:
            if self._reading is None:
                self._reading = asyncio.Lock()
            async with self._reading:
                known = self._known
                if known is None:
                    request = pb.ListStepsRequest(job_id=self._job_id, values=True)
                    response = await self._ask(lambda: self._calls.list_steps(request))
                    known = self._known = {step.name: step for step in response.steps}
        step = known.get(name)
        if step is not None:
            self._check_kind(step, kind)
        return step

    def _check_kind(self, step: pb.StepView, kind: str) -> None:
        if step.kind != kind:
            raise Discard(
                f"Step {step.name!r} at {self._names.places[step.name]} is a {kind}, but attempt "
                f"{step.attempt} stored a {step.kind} under this name: the code of the handler has changed. "
                "Give it another name, or retry the job without its steps (pulse jobs retry --fresh)."
            )

    async def _ask(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Call until a server answers. Raises Cancelled once the handler should stop: the claim is lost."""
        try:
            return await until_answered(call, self._job_id, self._is_cancelled, self._is_completing)
        except (InvalidTransition, NotFound) as error:
            self.is_lost = True
            raise Cancelled(error.message) from None
        except ResourceExhausted as error:
            raise Discard(error.message) from None


def _refuse_in_step(what: str, place: str) -> None:
    """Raise InvalidArgument inside of a step: the suspension would wait for the step, and the step for it."""
    if step := _in_step.get():
        raise InvalidArgument(
            f"{what} at {place} is called inside of step {step!r}, which cannot be continued: call it "
            "between two steps."
        )


def _is_in_event_loop() -> bool:
    return asyncio._get_running_loop() is not None


async def awaited(value: Awaitable[Any]) -> Any:
    """Await it in a coroutine, which a task needs."""
    return await value


Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


class ContextSteps:
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
