"""Signals to jobs, and their steps."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pulse.client.caller import Caller
from pulse.client.handler_threads import blocks_in_handler_threads
from pulse.handlers.step_values import encode_signal
from pulse.ids import uuid7
from pulse.messages import Reader, existing_id, message
from pulse.payload import decode_json
from pulse.v1 import pulse_pb2 as pb


class StepKind(StrEnum):
    """The kind of a step."""

    STEP = "step"
    SLEEP = "sleep"
    SIGNAL = "signal"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """A step of a job: something done, a sleep, or a signal."""

    name: str
    kind: StepKind
    attempt: int
    """The attempt that stored it, or that waits for it."""
    started_at: datetime | None
    stored_at: datetime | None
    """None: a signal that has not come."""
    until: datetime | None = None
    """The end of a sleep, or of the wait for a signal."""
    size: int = 0
    """The size of the value in bytes."""
    timed_out: bool = False
    """Whether the signal did not come in time."""
    value_bytes: bytes | None = None
    """The value, if it was requested and is kept."""

    @property
    def value(self) -> Any:
        """The value as plain JSON values. Raises InvalidArgument if it is something else."""
        return None if self.value_bytes is None else decode_json(self.value_bytes, "value")


step_info = Reader(StepInfo, value_bytes="value")
"""Returns the step in a `StepView`."""


class StepVerbs:
    """The verbs of a client for the steps of jobs."""

    _caller: Caller

    @blocks_in_handler_threads
    async def signal(
        self,
        job_id: str,
        name: str,
        value: object = None,
        *,
        reason: str = "",
        timeout: timedelta | None = None,
    ) -> None:
        """Send a signal to a job, for its `ctx.wait_for(name)`. A signal before the wait is kept.

        It is delivered exactly once. Raises InvalidTransition if the job has finished, NotFound if
        it does not exist. In a `def` handler this blocks.
        """
        request = message(
            pb.SignalJobRequest,
            job_id=existing_id(job_id),
            name=name,
            value=encode_signal(value),
            signal_id=uuid7(),
            reason=reason,
        )
        await self._caller.call(lambda stub: stub.SignalJob, request, timeout)

    async def steps(
        self, job_id: str, *, values: bool = False, timeout: timedelta | None = None
    ) -> list[StepInfo]:
        """Return the steps of a job, in the order in which they were stored. Raises NotFound.

        With `values` each step has its value, unless the job is completed.
        """
        request = message(pb.ListStepsRequest, job_id=existing_id(job_id), values=values)
        response = await self._caller.call(lambda stub: stub.ListSteps, request, timeout)
        return list(map(step_info, response.steps))
