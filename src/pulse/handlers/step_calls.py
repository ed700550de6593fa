"""The calls of handlers about their steps, over one connection, in the event loop of their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from pulse import tuning
from pulse.errors import ClientClosed, PulseError, ResourceExhausted, Unavailable, error_for_code
from pulse.jobs.caller import run_in_loop
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.wire.streams import Coalescer

Answer = TypeVar("Answer")


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
        self._coalescer: Coalescer[_Waiting] = Coalescer(
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
        return await self._in_loop(self._store_step(step))

    async def take_signal(self, request: pb.TakeSignalRequest) -> pb.TakeSignalResponse:
        response: pb.TakeSignalResponse = await self.call(lambda stub: stub.TakeSignal, request)
        return response

    async def list_steps(self, request: pb.ListStepsRequest) -> pb.ListStepsResponse:
        response: pb.ListStepsResponse = await self.call(lambda stub: stub.ListSteps, request)
        return response

    async def call(self, method: Callable[[Any], Any], request: Any) -> Any:
        """Make one call. Raises the server's error, or Unavailable if no server answers in time."""
        return await self._in_loop(self._call(method, request))

    def block(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Run it from a thread without an event loop, and wait for it."""
        return run_in_loop(coroutine, self._loop)

    async def close(self) -> None:
        """Fail the steps that were not stored. The connection stays open."""
        _fail(await self._coalescer.close(), ClientClosed("The client was closed before the step was sent."))

    async def _in_loop(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        if asyncio.get_running_loop() is self._loop:
            return await coroutine
        # A `def` handler may run an event loop in its thread, and call a verb there.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _store_step(self, step: pb.NewStep) -> pb.StepView | None:
        answer: asyncio.Future[pb.StepView | None] = self._loop.create_future()
        self._coalescer.add(_Waiting(step, answer))
        return await answer

    async def _send(self, batch: list[_Waiting]) -> None:
        request = pb.StoreStepsRequest(worker_id=self.worker_id, steps=[waiting.step for waiting in batch])
        try:
            response = await self._call(lambda stub: stub.StoreSteps, request)
        except ResourceExhausted as error:
            # The server has no room for the call now. A step that does not fit is refused
            # separately.
            _fail(batch, Unavailable(error.message))
        except PulseError as error:
            _fail(batch, error)
        except BaseException:
            # Otherwise their handlers would wait without end.
            _fail(batch, ClientClosed("The client was closed while the step was being sent."))
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


class _Waiting(NamedTuple):
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


def _fail(batch: Sequence[_Waiting], error: PulseError) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(type(error)(error.message))
