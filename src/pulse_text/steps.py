"""Steps of jobs and what suspended jobs wait for, in words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from pulse_text import printable
from pulse_text.durations import format_duration


class _Step(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def stored_at(self) -> datetime | None: ...

    @property
    def until(self) -> datetime | None: ...

    @property
    def timed_out(self) -> bool: ...


def what_a_step_did(
    step: _Step, present: datetime, write: Callable[[timedelta], str] = format_duration
) -> str:
    """Return what became of a step: `done in attempt 1`, `sleeps for 2h more`, `signal came in attempt 3`."""
    rest = None if step.until is None or step.until <= present else write(step.until - present)
    match str(step.kind):
        case "sleep" if rest is not None:
            return f"sleeps for {rest} more"
        case "sleep":
            did = "slept"
        case "signal" if step.timed_out:
            did = "signal did not come in time,"
        case "signal" if step.stored_at is not None:
            did = "signal came"
        case "signal":
            return "waits for the signal" if rest is None else f"waits for the signal, {rest} at the most"
        case _:
            did = "done"
    return f"{did} in attempt {step.attempt}"


def what_it_waits_for(waits_for: str, due: datetime | None, present: datetime) -> str:
    """Return why a suspended job does not run: `sleeps for 3 d`, `waits for approved`."""
    rest = None if due is None or due <= present else format_duration(due - present)
    if not waits_for:
        return f"sleeps for {rest}" if rest else "sleeps"
    name = signals_in_a_line(waits_for)
    return f"waits for {name}, {rest} at the most" if rest else f"waits for {name}"


def signals_in_a_line(waits_for: str) -> str:
    """Return the signals that a job waits for: `approved or rejected`."""
    return " or ".join(map(printable.one_line, waits_for.split("\n")))
