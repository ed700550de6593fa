"""Steps, between messages and the domain."""

from __future__ import annotations

from pulse.v1 import pulse_pb2 as pb
from pulse_server.doors.boundary import timestamp
from pulse_server.jobs.rules import Step, StepKind


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
