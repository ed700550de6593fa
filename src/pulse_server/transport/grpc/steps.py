"""The RPCs of steps and signals."""

from __future__ import annotations

from typing import Any

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import bounds
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.ids import parse_id
from pulse_server.domain.steps import Signal, check_signal_name, check_signal_names, check_step_name
from pulse_server.service.steps import Steps
from pulse_server.transport.grpc import convert_work
from pulse_server.transport.grpc.convert_steps import step_view
from pulse_server.transport.grpc.new_steps import read_steps
from pulse_server.transport.grpc.worker_ids import binds_worker_id


class StepRpcs:
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    @binds_worker_id
    async def store_steps(self, request: pb.StoreStepsRequest, _context: Any) -> pb.StoreStepsResponse:
        bounds.check_count("steps", len(request.steps), bounds.MAX_STEPS_PER_CALL)
        new = await read_steps(request, self._steps.bounds)
        answers = await self._steps.store(new.steps)
        if not new.unreadable and not any(answers):  # the usual case: all were stored
            return pb.StoreStepsResponse()
        return pb.StoreStepsResponse(unstored=new.unstored(answers))

    @binds_worker_id
    async def take_signal(self, request: pb.TakeSignalRequest, _context: Any) -> pb.TakeSignalResponse:
        step, signal = check_step_name(request.step, "step"), check_signal_names(request.signal, "signal")
        claim = convert_work.claims(request.worker_id)(request.claim)
        taken = await self._steps.take(claim, step, signal)
        return pb.TakeSignalResponse(step=None if taken is None else step_view(taken))

    async def list_steps(self, request: pb.ListStepsRequest, _context: Any) -> pb.ListStepsResponse:
        steps = await self._steps.list(parse_id(request.job_id))
        return pb.ListStepsResponse(steps=[step_view(step, with_value=request.values) for step in steps])

    async def signal_job(self, request: pb.SignalJobRequest, _context: Any) -> pb.SignalJobResponse:
        if not request.signal_id:
            raise InvalidArgument("signal_id", "is empty: make a UUID, so that the signal can be repeated.")
        await self._steps.signal(
            Signal(
                parse_id(request.signal_id, "signal_id"),
                parse_id(request.job_id),
                check_signal_name(request.name),
                _value(request.value),
            )
        )
        return pb.SignalJobResponse()


def _value(value: bytes) -> bytes:
    if len(value) > bounds.MAX_PAYLOAD_BYTES:
        raise InvalidArgument(
            "value", f"has {len(value)} bytes; {bounds.MAX_PAYLOAD_BYTES} are allowed at the most."
        )
    return value
