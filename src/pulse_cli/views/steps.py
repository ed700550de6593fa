"""The steps of a job, as lines and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.output import Shape, event, fields_shape, timeline
from pulse_cli.terminal import QUIET, Cell, Line, Row
from pulse_cli.views.shapes import whole_job_shape
from pulse_text.jobs import what_a_step_did
from pulse_text.times import format_duration

if TYPE_CHECKING:
    import pulse


def describe_steps(steps: Sequence[pulse.StepInfo], present: datetime) -> Iterator[Line]:
    """Yield a line for each step."""
    yield from timeline(_row(step, present) for step in steps)


def _row(step: pulse.StepInfo, present: datetime) -> Row:
    took = ""
    if step.kind == "step" and step.started_at is not None and step.stored_at is not None:
        took = f", took {format_duration(step.stored_at - step.started_at)}"
    did = Cell(f"{what_a_step_did(step, present)}{took}", QUIET)
    return event(step.stored_at or step.started_at, present, step.name, did)


def job_shape_with_steps(job: pulse.JobInfo, steps: Sequence[pulse.StepInfo]) -> Shape:
    """A whole job and its steps as JSON."""
    return whole_job_shape(job) | {"step_list": [step_shape(step) for step in steps]}


def step_shape(step: pulse.StepInfo) -> Shape:
    """A step as JSON."""
    return fields_shape(step, "name kind attempt started_at stored_at until size timed_out")
