"""The calls of handlers about their steps, over one connection, in the event loop of their worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pulse import tuning
from pulse.handlers.thread_calls import run_in_loop
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.connection import Connection
from pulse.worker.step_writer import StepWriter

Answer = TypeVar("Answer")


class WorkerStepCalls:
    """Calls the server for handlers in this event loop, in threads, and in event loops of their own."""

    def __init__(self, connect: Callable[[], Connection], loop: asyncio.AbstractEventLoop) -> None:
        """`connect` returns the connection, in the event loop, when a handler first needs it."""
        self._connect = connect
        self._loop = loop
        self._writer: StepWriter | None = None

    async def store_step(self, worker_id: str, step: pb.NewStep) -> pb.StepView | None:
        return await self._in_loop(self._store_step(worker_id, step))

    async def take_signal(self, request: pb.TakeSignalRequest) -> pb.TakeSignalResponse:
        return await self._in_loop(self._call(lambda stub: stub.TakeSignal, request))

    async def list_steps(self, request: pb.ListStepsRequest) -> pb.ListStepsResponse:
        return await self._in_loop(self._call(lambda stub: stub.ListSteps, request))

    def block(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return run_in_loop(coroutine, self._loop)

    async def close(self) -> None:
        """Fail the steps that were not stored. The connection stays open."""
        if self._writer is not None:
            await self._writer.close()

    async def _in_loop(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        if asyncio.get_running_loop() is self._loop:
            return await coroutine
        # A `def` handler may run an event loop in its thread, and call a verb there.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _store_step(self, worker_id: str, step: pb.NewStep) -> pb.StepView | None:
        return await self._opened().store(worker_id, step)

    async def _call(self, method: Callable[[Any], Any], request: Any) -> Any:
        connection = self._opened().connection
        return await connection.call(
            method(connection.stub), request, timeout_seconds=tuning.STEP_TIMEOUT_SECONDS
        )

    def _opened(self) -> StepWriter:
        if self._writer is None:
            self._writer = StepWriter(self._connect())
        return self._writer
