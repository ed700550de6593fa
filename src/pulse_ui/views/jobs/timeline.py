"""The attempts of a job on one line of time: what it waited for, and what it ran.

Drawn to scale, but for two things: what is short stays visible, and a wait that would leave no room for the
rest is shortened, and marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pulse
from pulse_ui.views.jobs.attempts import AttemptView, attempts_of, end_of

_SHORTEST_ATTEMPT = 1.2
_SHORTEST_WAIT = 0.2
"""Of a hundred: what the shortest take of the width."""
_OUT_OF_SCALE = 8.0
"""A wait that is so many times as long as everything shorter is shortened."""
_SHORTENED_TO = 0.6


@dataclass(frozen=True, slots=True)
class Timeline:
    attempts: tuple[AttemptView, ...]
    """Oldest first; the one to come, if any, is the last."""
    left_out: int
    """So many early attempts are no longer remembered."""
    begins_at: datetime | None
    ends_at: datetime | None

    @property
    def made(self) -> tuple[AttemptView, ...]:
        """The attempts that were made, newest first."""
        return tuple(attempt for attempt in reversed(self.attempts) if not attempt.is_to_come)

    @property
    def is_shortened(self) -> bool:
        return any(attempt.wait_is_shortened for attempt in self.attempts)

    @property
    def ran(self) -> float:
        """Seconds of all attempts that are remembered."""
        return sum(attempt.ran or 0.0 for attempt in self.attempts)


def timeline(job: pulse.JobInfo, now: datetime) -> Timeline:
    """Return the attempts of a job, placed on the line of time."""
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
    # Everything has its shortest width, and shares the rest by how long it took.
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
    """Return how long each wait is drawn: one that is out of all proportion leaves room for the others."""
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
