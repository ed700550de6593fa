"""Signals to jobs and their steps; and the calls by which a worker stores steps."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from pulse.client.caller import Caller
from pulse.client.handler_threads import blocks_in_handler_threads
from pulse.handlers.step_values import encode_signal
from pulse.ids import uuid7
from pulse.models.steps import StepInfo, step_info
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.messages import message

Answer = TypeVar("Answer")
# Of one call of a handler, which repeats it: a thread notices only between two calls that it should stop.
_TIMEOUT = timedelta(seconds=5)


class StepVerbs:
    """What a client can do with the steps of jobs."""

    _caller: Caller

    @blocks_in_handler_threads
    async def signal(
        self, job_id: str, name: str, value: object = None, *, timeout: timedelta | None = None
    ) -> None:
        """Send a signal to a job, for its `ctx.wait_for(name)`. One that comes first is kept.

        It is delivered once, whatever fails on the way. Raises InvalidTransition if the job has finished,
        NotFound if there is none. In a `def` handler this blocks.
        """
        request = message(
            pb.SignalJobRequest, job_id=job_id, name=name, value=encode_signal(value), signal_id=uuid7()
        )
        await self._caller.call(lambda stub: stub.SignalJob, request, timeout)

    async def steps(
        self, job_id: str, *, values: bool = False, timeout: timedelta | None = None
    ) -> list[StepInfo]:
        """Return the steps of a job, in the order in which they were stored. Raises NotFound.

        With `values` each has what it returned, unless the job is completed.
        """
        request = message(pb.ListStepsRequest, job_id=job_id, values=values)
        response = await self._caller.call(lambda stub: stub.ListSteps, request, timeout)
        return list(map(step_info, response.steps))


class ClientStepCalls:
    """The calls of a handler, over the connection of its client."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def store_step(self, request: pb.StoreStepRequest) -> pb.StoreStepResponse:
        return await self._caller.call(lambda stub: stub.StoreStep, request, _TIMEOUT)

    async def take_signal(self, request: pb.TakeSignalRequest) -> pb.TakeSignalResponse:
        return await self._caller.call(lambda stub: stub.TakeSignal, request, _TIMEOUT)

    async def list_steps(self, request: pb.ListStepsRequest) -> pb.ListStepsResponse:
        return await self._caller.call(lambda stub: stub.ListSteps, request, _TIMEOUT)

    def block(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return self._caller.run_in_thread(coroutine)
