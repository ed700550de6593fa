"""The RPCs of steps and signals. Requests are checked here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.users import OPERATORS
from pulse_server.base import bounds
from pulse_server.base.bounds import MOST_STEP_BYTES, StepBounds
from pulse_server.base.errors import InvalidArgument, PulseError, ResourceExhausted, Unavailable
from pulse_server.base.ids import parse_id
from pulse_server.base.loops import TURN_ENTRIES, in_turns
from pulse_server.doors.boundary import duration, refusal, timestamp
from pulse_server.doors.callers import Callers, binds_worker_id
from pulse_server.jobs import messages
from pulse_server.jobs.reports import NewStep
from pulse_server.jobs.rules import Claim, Step, StepKind
from pulse_server.steps.rules import Signal, check_signal_name, check_signal_names, check_step_name, too_large
from pulse_server.steps.service import Steps


def step_view(step: Step, *, with_value: bool = True) -> pb.StepView:
    return pb.StepView(
        name=step.name,
        kind=step.kind.value,
        attempt=step.attempt,
        started_at=timestamp(step.started_at),
        stored_at=timestamp(step.stored_at),
        until=timestamp(step.until),
        value=step.value if with_value else None,
        size=step.size,
        due=step.is_due,
        timed_out=_is_timed_out(step),
        signal=step.signal,
    )


def step_to_continue(step: Step) -> pb.StepView:
    """Return the fields of a step that a handler needs, in a quarter of the time of `step_view`."""
    view = pb.StepView(
        name=step.name, kind=step.kind.value, attempt=step.attempt, value=step.value, due=step.is_due
    )
    if step.stored_at is not None:
        view.stored_at.seconds = int(step.stored_at.timestamp())
    if step.kind is StepKind.SIGNAL:
        view.timed_out, view.signal = _is_timed_out(step), step.signal
    return view


def _is_timed_out(step: Step) -> bool:
    return step.kind is StepKind.SIGNAL and step.stored_at is not None and step.signal_id is None


class StepRpcs:
    def __init__(self, steps: Steps, callers: Callers) -> None:
        self._steps = steps
        self._callers = callers

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
        claim = messages.claims(request.worker_id)(request.claim)
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
            ),
            by_operator=self._callers.role in (None, *OPERATORS),
        )
        return pb.SignalJobResponse()


def _value(value: bytes) -> bytes:
    if len(value) > bounds.MAX_PAYLOAD_BYTES:
        raise InvalidArgument(
            "value", f"has {len(value)} bytes; {bounds.MAX_PAYLOAD_BYTES} are allowed at the most."
        )
    return value


class NewSteps(NamedTuple):
    """The steps that a worker has to store."""

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
    read_claim = messages.claims(request.worker_id)
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
