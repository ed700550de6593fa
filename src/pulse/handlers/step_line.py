"""How steps reach the server: the calls, and for which worker they are made."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from pulse.v1 import pulse_pb2 as pb

Answer = TypeVar("Answer")


class StepCalls(Protocol):
    """The calls to the server, from any event loop. Each raises the errors of pulse."""

    async def store_step(self, worker_id: str, step: pb.NewStep) -> pb.StepView | None:
        """Returns the step that was stored under its name before, if there is one."""
        ...

    async def take_signal(self, request: pb.TakeSignalRequest) -> pb.TakeSignalResponse: ...

    async def list_steps(self, request: pb.ListStepsRequest) -> pb.ListStepsResponse: ...

    def block(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Run it from a thread without an event loop, and wait for it."""
        ...


class StepLine:
    """How the handlers of a worker store their steps."""

    def __init__(self, worker_id: str, most_bytes: Callable[[], int], calls: StepCalls) -> None:
        self.worker_id = worker_id
        self._most_bytes = most_bytes
        self.calls = calls

    @property
    def most_bytes(self) -> int:
        """Of the steps of a job. 0: the server does not know steps."""
        return self._most_bytes()
