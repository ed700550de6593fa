"""Reads the steps that a worker has to store, and names the unstored steps in the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import bounds
from pulse_server.domain.errors import PulseError, ResourceExhausted, Unavailable
from pulse_server.domain.jobs import Claim
from pulse_server.domain.steps import (
    MOST_STEP_BYTES,
    NewStep,
    Step,
    StepBounds,
    check_step_name,
    too_large,
)
from pulse_server.transport.grpc import convert_work
from pulse_server.transport.grpc.boundary import refusal
from pulse_server.transport.grpc.convert_steps import step_view
from pulse_server.transport.grpc.convert_times import duration
from pulse_server.turns import TURN_ENTRIES, in_turns


class NewSteps(NamedTuple):
    steps: list[NewStep]
    """The readable steps, in the order of the request."""
    unreadable: dict[int, pb.Refusal]
    """The unreadable steps, by their index in the request."""

    def unstored(self, answers: Sequence[Step | PulseError | None]) -> list[pb.UnstoredStep]:
        """Name the steps that were not stored. `answers` are for `steps`.

        Known values that do not fit into one answer are left for a repeat.
        """
        unstored = [
            pb.UnstoredStep(index=index, refusal=refusal) for index, refusal in self.unreadable.items()
        ]
        indexes = range(len(self.steps) + len(self.unreadable))
        read = (index for index in indexes if index not in self.unreadable)
        room = MOST_STEP_BYTES
        for index, answer in zip(read, answers, strict=True):
            if isinstance(answer, PulseError):
                unstored.append(pb.UnstoredStep(index=index, refusal=refusal(answer)))
            elif answer is not None and answer.size > room:
                later = Unavailable("The stored steps are too large for one answer. Try again.")
                unstored.append(pb.UnstoredStep(index=index, refusal=refusal(later)))
            elif answer is not None:
                room -= answer.size
                unstored.append(pb.UnstoredStep(index=index, known=step_view(answer)))
        return unstored


async def read_steps(request: pb.StoreStepsRequest, most: StepBounds) -> NewSteps:
    """Read the steps. One that cannot be stored is named with its reason."""
    read_claim = convert_work.claims(request.worker_id)
    new = NewSteps([], {})
    async for some in in_turns(request.steps, TURN_ENTRIES):
        for message in some:
            try:
                new.steps.append(_step(message, read_claim, most))
            except PulseError as error:
                index = len(new.steps) + len(new.unreadable)
                new.unreadable[index] = refusal(error)  # not the error: its traceback holds this frame
    return new


def _step(message: pb.NewStep, read_claim: Callable[[pb.Claim], Claim], most: StepBounds) -> NewStep:
    step = NewStep(
        read_claim(message.claim),
        check_step_name(message.name),
        message.value,
        bounds.check_delay(duration(message.ran, "ran"), "ran"),
    )
    if step.size > most.bytes:
        raise ResourceExhausted(too_large(step.name, step.size, most.bytes))
    return step
