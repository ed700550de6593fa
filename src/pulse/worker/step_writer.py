"""Stores the steps of handlers: those that end while a call is in flight share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from pulse import tuning
from pulse.errors import ClientClosed, PulseError, ResourceExhausted, Unavailable, error_for_code
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.coalescing import Coalescer
from pulse.wire.connection import Connection


class StepWriter:
    """Stores steps in batches. Each handler has its own answer. Belongs to one event loop."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._coalescer: Coalescer[_Waiting] = Coalescer(
            self._send,
            size_of=lambda waiting: len(waiting.step.value),
            most_items=tuning.STEP_BATCH_STEPS,
            most_bytes=tuning.STEP_BATCH_BYTES,
            in_flight=tuning.STEP_BATCHES_IN_FLIGHT,
        )

    async def store(self, worker_id: str, step: pb.NewStep) -> pb.StepView | None:
        """Store the step. Returns the one that was stored under its name before, if there is one.

        Raises the server's error, or Unavailable if no server answers in time.
        """
        answer: asyncio.Future[pb.StepView | None] = asyncio.get_running_loop().create_future()
        self._coalescer.add(_Waiting(worker_id, step, answer))
        return await answer

    async def close(self) -> None:
        """Fail the steps that were not sent."""
        _fail(await self._coalescer.close(), ClientClosed("The client was closed before the step was sent."))

    async def _send(self, batch: list[_Waiting]) -> None:
        try:
            # A client that has started another worker may have steps of both.
            for worker_id in dict.fromkeys(waiting.worker_id for waiting in batch):
                await self._store(worker_id, [one for one in batch if one.worker_id == worker_id])
        except BaseException as error:
            # Otherwise their handlers would wait without end.
            _fail(batch, ClientClosed("The client was closed while the step was being sent."))
            if not isinstance(error, asyncio.CancelledError | ClientClosed):
                raise

    async def _store(self, worker_id: str, batch: list[_Waiting]) -> None:
        request = pb.StoreStepsRequest(worker_id=worker_id, steps=[waiting.step for waiting in batch])
        try:
            response = await self.connection.call(
                self.connection.stub.StoreSteps, request, timeout_seconds=tuning.STEP_TIMEOUT_SECONDS
            )
        except ResourceExhausted as error:
            # Of the call: the server has no room for it now. A step that does not fit is refused alone.
            _fail(batch, Unavailable(error.message))
        except PulseError as error:
            _fail(batch, error)
        else:
            unstored = {item.index: item for item in response.unstored}
            for index, waiting in enumerate(batch):
                waiting.settle(unstored.get(index))


class _Waiting(NamedTuple):
    """A handler that waits for its step to be stored."""

    worker_id: str
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
