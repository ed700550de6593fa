"""The calls of handlers about their steps, over one connection, in the event loop of their worker.

They are repeated until a server answers. The names of steps and signals show which steps an attempt has used,
and where. The annotation of a step's function gives the type of its value.
"""

from __future__ import annotations

import asyncio
import collections.abc
import functools
import types
import typing
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeVar

from pulse import tuning
from pulse.errors import (
    ClientClosed,
    InvalidArgument,
    InvalidHandler,
    PulseError,
    ResourceExhausted,
    SignalTimeout,
    Unavailable,
    error_for_code,
)
from pulse.jobs.caller import run_in_loop
from pulse.messages import check_unicode
from pulse.outcomes import Cancelled, Discard
from pulse.payload import Decode, UndecodableArgs, decoder_for, encode
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.streams import Coalescer

Answer = TypeVar("Answer")

# Between two tries of a call that no server answers. The job keeps its lease, or is stopped.
AGAIN_SECONDS = 1.0


async def until_answered(
    call: Callable[[], Awaitable[Answer]],
    job_id: str,
    is_cancelled: Callable[[], bool],
    is_completing: Callable[[], bool],
) -> Answer:
    """Call until a server answers. Raises Cancelled once the handler should stop.

    Raises Unavailable if no server answers after `ctx.complete`.
    """
    while True:
        if is_cancelled():
            raise Cancelled(f"Job {job_id} should stop.")
        try:
            return await call()
        except Unavailable as error:
            if is_completing():
                # The handler's own transaction may have locked the job: neither would ever end. ADR-0075
                raise Unavailable(
                    f"{error.message} From ctx.complete to the commit the job is locked, and stores no "
                    "step: call ctx.complete last."
                ) from None
            await asyncio.sleep(AGAIN_SECONDS)


LONGEST_NAME = 200


class Mark(NamedTuple):
    """The names that were in use when a part of the attempt began."""

    places: dict[str, str]
    sleeps: int


AT_THE_START = Mark({}, 0)


class Signals(NamedTuple):
    """The signals that a step waits for: one, or any of several."""

    names: tuple[str, ...]
    is_any: bool

    @property
    def verb(self) -> str:
        """The call in the handler, for messages."""
        return f"ctx.wait_for{'_any' * self.is_any}({', '.join(map(repr, self.names))})"

    @property
    def step(self) -> str:
        """The name of the step that waits for them."""
        return " or ".join(self.names)

    @property
    def lines(self) -> str:
        """The names, one in each line."""
        return "\n".join(self.names)

    def timed_out(self) -> SignalTimeout:
        """Return the error for a signal that did not come in time."""
        names = " or ".join(map(repr, self.names))
        return SignalTimeout(f"The signal {names} did not come in time.")


class StepNames:
    """The names that one attempt has used. Each may be used once."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        """Where each name is used, as file:line."""
        self._sleeps = 0
        self._asked: set[str] = set()

    def take(self, place: str, name: str, index: int | None) -> str:
        """Return the name under which a step is stored. Raises InvalidArgument if the attempt has used it."""
        own = stored_name(name, index)
        if own in self.places:
            raise InvalidArgument(
                f"Step {own!r} is used twice in one attempt: at {self.places[own]} and at {place}. Give "
                "each a name of its own, and in a loop an index: ctx.step(name, function, …, index=i)."
            )
        self.places[own] = place
        return own

    def take_sleep(self, place: str) -> str:
        """Return the name of a sleep that was given none. These are numbered."""
        self._sleeps += 1
        return self.take(place, "sleep", self._sleeps if self._sleeps > 1 else None)

    def mark(self) -> Mark:
        """Return the names that are in use now."""
        return Mark(dict(self.places), self._sleeps)

    def rewind(self, mark: Mark) -> None:
        """Let the names that were used since the mark be used again."""
        self._asked.update(self.places)
        self.places, self._sleeps = dict(mark.places), mark.sleeps

    def has_asked_for(self, name: str) -> bool:
        """Whether the attempt has used this name, also before it was rewound."""
        return name in self.places or name in self._asked


def stored_name(name: str, index: int | None) -> str:
    """Return the name under which a step is stored. Raises InvalidArgument if it cannot be one."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME - 20 or "#" in name:
        raise InvalidArgument(
            f"{name!r} cannot be the name of a step: use a text of up to {LONGEST_NAME - 20} characters, "
            "without #."
        )
    check_unicode("The name", name)
    if index is None:
        return name
    if not isinstance(index, int) or isinstance(index, bool):
        raise InvalidArgument(f"The index of step {name!r} has to be a number, not {index!r}.")
    return f"{name}#{index}"


def check_signals(names: tuple[str, ...], *, is_any: bool) -> Signals:
    """Return the signals to wait for. Raises InvalidArgument for an invalid name."""
    if is_any and not names:
        raise InvalidArgument("ctx.wait_for_any() takes the names of signals: none was given.")
    for name in names:
        stored_name(name, None)
        if "\n" in name:
            raise InvalidArgument(f"{name!r} cannot be the name of a signal: leave out the line break.")
    return Signals(tuple(dict.fromkeys(names)), is_any)


_NOTHING = b"null"
# What functions return. To read it takes longer than the rest of a step.
_known: weakref.WeakKeyDictionary[types.FunctionType, Any] = weakref.WeakKeyDictionary()
_AWAITABLES = (collections.abc.Awaitable, collections.abc.Coroutine)


def encode_step(name: str, function: Callable[..., Any], value: object, most_bytes: int) -> bytes:
    """Return the value of a step as it is stored. Raises Discard: a further attempt would return the same."""
    if isinstance(value, bytes) and _returned(function) is not bytes:
        raise Discard(f"Step {name!r} returned bytes: annotate its function with `-> bytes`.")
    try:
        data = _NOTHING if value is None else encode(value, f"value of step {name!r}")
    except InvalidArgument as error:
        raise Discard(error.message) from None
    if len(data) > most_bytes:
        raise Discard(
            f"Step {name!r} returned {len(data)} bytes, and the steps of a job may have {most_bytes} "
            "together. Store large data elsewhere and return a reference to it, or raise "
            "PULSE_MAX_STEP_BYTES of pulsed."
        )
    return data


def decoder_of(source: Any, *, is_type: bool = False) -> Decode:
    """Return the reader of what this function returns, or of this type. Raises Discard if it does not fit."""
    annotation = source if is_type else _returned(source)
    read = _decoder(Any if annotation is None and is_type else annotation)

    def decode(data: bytes) -> Any:
        try:
            return read(data)
        except UndecodableArgs as error:
            raise Discard(f"A stored value cannot be read as {annotation!r}: {error.problem}") from None

    return decode


@functools.lru_cache(maxsize=1024)
def _decoder(annotation: Any) -> Decode:
    return decoder_for(annotation)


def _returned(function: Any) -> Any:
    """Return the annotated return type of the function; for a coroutine, the type of its result."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return function  # a class returns its instance
    if not hasattr(function, "__annotations__") and callable(function):
        function = type(function).__call__
    if "return" not in getattr(function, "__annotations__", {}):
        return Any
    function = getattr(function, "__func__", function)  # each access makes a new method object
    if isinstance(function, types.FunctionType) and function in _known:
        return _known[function]
    try:
        annotation = typing.get_type_hints(function, include_extras=True)["return"]
    except (NameError, TypeError) as error:
        raise InvalidHandler(f"The annotations of {function!r} cannot be read: {error}.") from None
    if typing.get_origin(annotation) in _AWAITABLES:
        annotation = typing.get_args(annotation)[-1]
    if isinstance(function, types.FunctionType):
        _known[function] = annotation
    return annotation


class StepCalls:
    """Calls the server for handlers in this event loop, in threads, and in event loops of their own.

    Steps that end while a call is in flight share the next one. Each handler has its own answer.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        loop: asyncio.AbstractEventLoop,
        worker_id: str,
        client: Any = None,
    ) -> None:
        """`connect` returns the connection, in the event loop, when a handler first needs it.

        `client` is the Pulse or SyncPulse of the worker, for jobs that handlers add to workflows.
        """
        self.client = client
        self.worker_id = worker_id
        self.most_bytes = 0
        """The bound on the steps of a job. 0: the server does not know steps."""
        self.completion_key = pb.CompletionKey()
        """For `ctx.complete`. Empty: the server has sent none."""
        self._connect = connect
        self._connection: Connection | None = None
        self._loop = loop
        self._coalescer: Coalescer[_WaitingStep] = Coalescer(
            self._send,
            size_of=lambda waiting: len(waiting.step.value),
            most_items=tuning.STEP_BATCH_STEPS,
            most_bytes=tuning.STEP_BATCH_BYTES,
            in_flight=tuning.STEP_BATCHES_IN_FLIGHT,
        )

    async def store_step(self, step: pb.NewStep) -> pb.StepView | None:
        """Store the step. Returns the step that was stored under its name before, if there is one.

        Raises the server's error, or Unavailable if no server answers in time.
        """
        return await self.in_loop(self._store_step(step))

    async def take_signal(self, request: pb.TakeSignalRequest) -> pb.TakeSignalResponse:
        response: pb.TakeSignalResponse = await self.call(lambda stub: stub.TakeSignal, request)
        return response

    async def list_steps(self, request: pb.ListStepsRequest) -> pb.ListStepsResponse:
        response: pb.ListStepsResponse = await self.call(lambda stub: stub.ListSteps, request)
        return response

    async def call(self, method: Callable[[Any], Any], request: Any) -> Any:
        """Make one call. Raises the server's error, or Unavailable if no server answers in time."""
        return await self.in_loop(self._call(method, request))

    def block(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Run it from a thread without an event loop, and wait for it."""
        return run_in_loop(coroutine, self._loop)

    async def close(self) -> None:
        """Fail the steps that were not stored. The connection stays open."""
        left = await self._coalescer.close()
        fail(
            [waiting.answer for waiting in left],
            ClientClosed("The client was closed before the step was sent."),
        )

    async def in_loop(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Run it in the event loop of the worker, and wait for it."""
        if asyncio.get_running_loop() is self._loop:
            return await coroutine
        # A `def` handler may run an event loop in its thread, and call a verb there.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _store_step(self, step: pb.NewStep) -> pb.StepView | None:
        answer: asyncio.Future[pb.StepView | None] = self._loop.create_future()
        self._coalescer.add(_WaitingStep(step, answer))
        return await answer

    async def _send(self, batch: list[_WaitingStep]) -> None:
        request = pb.StoreStepsRequest(worker_id=self.worker_id, steps=[waiting.step for waiting in batch])
        answers = [waiting.answer for waiting in batch]
        try:
            response = await self._call(lambda stub: stub.StoreSteps, request)
        except ResourceExhausted as error:
            # The server has no room for the call now. A step that does not fit is refused
            # separately.
            fail(answers, Unavailable(error.message))
        except PulseError as error:
            fail(answers, error)
        except BaseException:
            # Otherwise their handlers would wait without end.
            fail(answers, ClientClosed("The client was closed while the step was being sent."))
            raise
        else:
            unstored = {item.index: item for item in response.unstored}
            for index, waiting in enumerate(batch):
                waiting.settle(unstored.get(index))

    async def _call(self, method: Callable[[Any], Any], request: Any) -> Any:
        connection = self._connection = self._connection or self._connect()
        return await connection.call(
            method(connection.stub), request, timeout_seconds=tuning.STEP_TIMEOUT_SECONDS
        )


class _WaitingStep(NamedTuple):
    """A handler that waits for its step to be stored."""

    step: pb.NewStep
    answer: asyncio.Future[pb.StepView | None]

    def settle(self, unstored: pb.UnstoredStep | None) -> None:
        if self.answer.done():  # its handler was canceled
            return
        if unstored is None:
            self.answer.set_result(None)
        elif unstored.HasField("known"):
            self.answer.set_result(unstored.known)
        else:
            refusal = unstored.refusal
            self.answer.set_exception(error_for_code(refusal.code, refusal.message))


def fail(answers: Iterable[asyncio.Future[Any]], error: PulseError) -> None:
    """Raise the error in those who still wait for these answers, in each an error of its own."""
    for answer in answers:
        if not answer.done():
            answer.set_exception(type(error)(error.message))
