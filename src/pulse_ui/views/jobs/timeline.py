"""The attempts of a job on a time line: its waits and runs.

Drawn to scale with two exceptions: short ones stay visible, and a wait that would dwarf the rest is shortened
and marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

import pulse
from pulse_text import printable
from pulse_text.jobs import what_a_step_did
from pulse_ui.views.jobs.attempts import AttemptView, attempts_of, end_of
from pulse_ui.words import span

_SHORTEST_ATTEMPT = 1.2
_SHORTEST_WAIT = 0.2
"""The minimum widths, in percent."""
_OUT_OF_SCALE = 8.0
"""A wait that is this many times longer than all shorter ones together is shortened."""
_SHORTENED_TO = 0.6


@dataclass(frozen=True, slots=True)
class Timeline:
    attempts: tuple[AttemptView, ...]
    """Oldest first; an upcoming one is the last."""
    left_out: int
    """How many early attempts are no longer stored."""
    begins_at: datetime | None
    ends_at: datetime | None

    @property
    def made(self) -> tuple[AttemptView, ...]:
        """The attempts that have started, newest first."""
        return tuple(attempt for attempt in reversed(self.attempts) if not attempt.is_to_come)

    @property
    def is_thinned(self) -> bool:
        """Whether attempts between the stored ones are missing: snoozed or suspended ones in a row."""
        numbers = [attempt.number for attempt in self.attempts]
        return any(later > earlier + 1 for earlier, later in pairwise([self.left_out, *numbers]))

    @property
    def queue_wait(self) -> float | None:
        """Seconds before the first attempt, if it is stored."""
        is_stored = bool(self.attempts) and self.attempts[0].number == 1 and not self.left_out
        return self.attempts[0].waited if is_stored else None

    @property
    def is_shortened(self) -> bool:
        return any(attempt.wait_is_shortened for attempt in self.attempts)

    @property
    def ran(self) -> float:
        """The run time of all stored attempts in seconds."""
        return sum(attempt.ran or 0.0 for attempt in self.attempts)


def timeline(job: pulse.JobInfo, now: datetime) -> Timeline:
    """Return the attempts of a job, placed on the time line."""
    attempts, left_out = attempts_of(job, now)
    begins_at = None if left_out else job.submitted_at
    if begins_at is None and attempts:
        begins_at = attempts[0].started_at
    ends_at = max((end for one in attempts if (end := end_of(one, now)) is not None), default=begins_at)
    return Timeline(tuple(_placed(attempts)), left_out, begins_at, ends_at)


def _placed(attempts: Sequence[AttemptView]) -> Iterable[AttemptView]:
    waits = [attempt.waited or 0.0 for attempt in attempts]
    runs = [attempt.ran or 0.0 for attempt in attempts]
    drawn = shortened(waits, sum(runs))
    total = sum(drawn) + sum(runs)
    # Each has its minimum width, and a share of the rest by its duration.
    least = len(attempts) * (_SHORTEST_ATTEMPT + _SHORTEST_WAIT)
    each = (100.0 - least) / total if total > 0 else 0.0
    left = 0.0
    for attempt, wait, drawn_wait, run in zip(attempts, waits, drawn, runs, strict=True):
        wait_width = _SHORTEST_WAIT + drawn_wait * each
        run_width = _SHORTEST_ATTEMPT + run * each
        yield replace(
            attempt,
            wait_left=round(left, 2),
            wait_width=round(wait_width, 2),
            wait_is_shortened=drawn_wait < wait,
            run_left=round(left + wait_width, 2),
            run_width=round(run_width, 2),
        )
        left += wait_width + run_width


def shortened(waits: Sequence[float], ran: float) -> list[float]:
    """Return the drawn length of each wait, with disproportionate ones shortened."""
    drawn = list(waits)
    positive = sorted(wait for wait in waits if wait > 0)
    if len(positive) < 2 and not ran:
        return drawn
    so_far = max(ran, positive[0]) if positive else ran
    for position in sorted(range(len(waits)), key=lambda place: waits[place]):
        if waits[position] > _OUT_OF_SCALE * so_far > 0:
            drawn[position] = so_far * _SHORTENED_TO
        so_far += drawn[position]
    return drawn


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
