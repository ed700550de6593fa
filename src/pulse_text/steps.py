"""Steps of jobs and what suspended jobs wait for, in words."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from pulse_text import printable
from pulse_text.durations import format_duration


class _Step(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def stored_at(self) -> datetime | None: ...

    @property
    def until(self) -> datetime | None: ...

    @property
    def timed_out(self) -> bool: ...


def what_a_step_did(step: _Step, present: datetime) -> str:
    """Return what became of a step: `done`, `sleeps for 2 h`, `signal came`."""
    match str(step.kind):
        case "sleep":
            if step.until is not None and step.until > present:
                return f"sleeps for {format_duration(step.until - present)} more"
            return "slept"
        case "signal":
            if step.timed_out:
                return "signal did not come in time"
            if step.stored_at is not None:
                return "signal came"
            if step.until is not None and step.until > present:
                return f"waits for the signal, {format_duration(step.until - present)} at the most"
            return "waits for the signal"
    return "done"


def what_it_waits_for(waits_for: str, due: datetime | None, present: datetime) -> str:
    """Return why a suspended job does not run: `sleeps for 3 d`, `waits for approved`."""
    rest = None if due is None or due <= present else format_duration(due - present)
    if not waits_for:
        return f"sleeps for {rest}" if rest else "sleeps"
    name = printable.one_line(waits_for)
    return f"waits for {name}, {rest} at the most" if rest else f"waits for {name}"
