"""Signals to jobs, and their steps."""

from __future__ import annotations

from datetime import timedelta

from pulse.client.caller import Caller
from pulse.client.handler_threads import blocks_in_handler_threads
from pulse.handlers.step_values import encode_signal
from pulse.ids import uuid7
from pulse.models.steps import StepInfo, step_info
from pulse.names import existing_id
from pulse.v1 import pulse_pb2 as pb
from pulse.wire.messages import message


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
            pb.SignalJobRequest,
            job_id=existing_id(job_id),
            name=name,
            value=encode_signal(value),
            signal_id=uuid7(),
        )
        await self._caller.call(lambda stub: stub.SignalJob, request, timeout)

    async def steps(
        self, job_id: str, *, values: bool = False, timeout: timedelta | None = None
    ) -> list[StepInfo]:
        """Return the steps of a job, in the order in which they were stored. Raises NotFound.

        With `values` each has what it returned, unless the job is completed.
        """
        request = message(pb.ListStepsRequest, job_id=existing_id(job_id), values=values)
        response = await self._caller.call(lambda stub: stub.ListSteps, request, timeout)
        return list(map(step_info, response.steps))
