"""The part of the fake pulsed that stores steps."""

from __future__ import annotations

import threading
from typing import Any

import grpc

from pulse.v1 import pulse_pb2 as pb
from pulse.wire.servers import FROM_PULSED
from tests.sdk.patience import PATIENCE_SECONDS


class FakeSteps:
    """Stores steps by job and name, one call after the other."""

    changed: threading.Condition

    def __init__(self) -> None:
        self.step_bytes = 1024 * 1024  # in the welcome; 0: it does not know steps
        self.steps: dict[tuple[str, str], pb.NewStep] = {}
        self.step_calls: list[list[str]] = []  # the names in each
        self.step_peers: set[str] = set()
        self.step_calls_without_room = 0
        self.signals: dict[str, tuple[str, bytes]] = {}  # one for each job: its name and value
        self.steps_may_answer = threading.Event()
        self.steps_may_answer.set()

    def StoreSteps(self, request: pb.StoreStepsRequest, context: Any) -> pb.StoreStepsResponse:  # noqa: N802
        with self.changed:
            self.step_calls.append([step.name for step in request.steps])
            self.step_peers.add(context.peer())
            has_room = not self.step_calls_without_room
            self.step_calls_without_room -= not has_room
            self.changed.notify_all()
        assert self.steps_may_answer.wait(PATIENCE_SECONDS)
        if not has_room:
            context.set_trailing_metadata(((FROM_PULSED, "1"),))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "There is no room now. Try again in a moment.")
        with self.changed:
            self.steps |= {(step.claim.job_id, step.name): step for step in request.steps}
        return pb.StoreStepsResponse()

    def TakeSignal(self, request: pb.TakeSignalRequest, _context: Any) -> pb.TakeSignalResponse:  # noqa: N802
        name, value = self.signals.get(request.claim.job_id, ("", b""))
        if name not in request.signal.split("\n"):
            return pb.TakeSignalResponse()
        return pb.TakeSignalResponse(
            step=pb.StepView(name=request.step, kind="signal", value=value, signal=name)
        )
