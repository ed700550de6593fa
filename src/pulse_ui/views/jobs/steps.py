"""The steps of a job, as its page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pulse
from pulse_text import printable
from pulse_text.steps import what_a_step_did
from pulse_ui.views.words import span

_MARKS = {"step": "✓", "sleep": "◷", "signal": "✉"}


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step."""

    name: str
    mark: str
    what: str
    moment: datetime | None
    """When it was stored, or since when it waits."""
    took: float | None
    """Seconds that it ran, of a step."""
    size: int
    is_waiting: bool


def step_rows(steps: Sequence[pulse.StepInfo], now: datetime) -> list[StepRow]:
    """Return the steps in their order."""
    return [_row(step, now) for step in steps]


def _row(step: pulse.StepInfo, now: datetime) -> StepRow:
    is_step = step.kind is pulse.StepKind.STEP
    took = None
    if is_step and step.started_at is not None and step.stored_at is not None:
        took = max(0.0, (step.stored_at - step.started_at).total_seconds())
    is_asleep = step.kind is pulse.StepKind.SLEEP and step.until is not None and step.until > now
    return StepRow(
        name=printable.one_line(step.name),
        mark=_MARKS[step.kind],
        what=what_a_step_did(step, now, lambda rest: span(rest.total_seconds())),
        moment=step.stored_at or step.started_at,
        took=took,
        size=step.size,
        is_waiting=is_asleep or step.stored_at is None,
    )
