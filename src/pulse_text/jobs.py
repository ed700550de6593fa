"""Jobs in words: the names and marks of statuses, facts, steps and progress (40%, about 3m left).

Statuses are strings, not the SDK's JobStatus: importing the SDK would slow the start of every command. A
JobStatus equals its string, so both may be looked up here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from pulse_text import printable
from pulse_text.times import format_duration

STATUSES = ("PENDING", "RUNNING", "RETRYING", "COMPLETED", "DEAD_LETTERED", "CANCELED")
WAITING = ("PENDING", "RETRYING")
LIVE = ("PENDING", "RUNNING", "RETRYING")
RETRYABLE = ("DEAD_LETTERED", "CANCELED")
TERMINAL = ("COMPLETED", "DEAD_LETTERED", "CANCELED")

STATUS_NAMES: Mapping[str, str] = {
    "PENDING": "Pending",
    "RUNNING": "Running",
    "RETRYING": "Retrying",
    "COMPLETED": "Completed",
    "DEAD_LETTERED": "Dead",
    "CANCELED": "Canceled",
}
STATUS_WORDS: Mapping[str, str] = {
    **{status: name.lower() for status, name in STATUS_NAMES.items()},
    # "Dead jobs" would leave open whether they can be retried.
    "DEAD_LETTERED": "dead-lettered",
}
STATUS_MARKS: Mapping[str, str] = {
    "PENDING": "○",
    "RUNNING": "▶",
    "RETRYING": "↻",
    "COMPLETED": "✓",
    "DEAD_LETTERED": "✕",
    "CANCELED": "–",
}
"""Shown beside the name: color alone never carries a status."""


class _Keyed(Protocol):
    @property
    def idempotency_key(self) -> str | None: ...

    @property
    def unique_key(self) -> str | None: ...

    @property
    def unique_while(self) -> str | None: ...


_HELD = {"waiting": "until it starts", "live": "until it is finished"}


def plain_facts(job: _Keyed) -> list[tuple[str, str, str]]:
    """Return the texts of a job that need no more than a label. The third is a remark, or ""."""
    known = [
        ("Idempotency key", job.idempotency_key, ""),
        ("Unique key", job.unique_key, _HELD.get(job.unique_while or "", "no longer held")),
    ]
    return [(label, text, remark) for label, text, remark in known if text]


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


def what_it_waits_for(
    waits_for: str,
    due: datetime | None,
    present: datetime,
    write: Callable[[timedelta], str] = format_duration,
) -> str:
    """Return why a suspended job does not run: `sleeps for 3 d`, `waits for approved`."""
    rest = None if due is None or due <= present else write(due - present)
    if not waits_for:
        return f"sleeps for {rest}" if rest else "sleeps"
    name = signals_in_a_line(waits_for)
    return f"waits for {name}, {rest} at the most" if rest else f"waits for {name}"


def signals_in_a_line(waits_for: str) -> str:
    """Return the signals that a job waits for: `approved or rejected`."""
    return " or ".join(map(printable.one_line, waits_for.split("\n")))


_MINUTE, _HOUR, _DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
# An estimate is not shown if its report is older than this, or if it is longer than the other.
_STALE = timedelta(minutes=10)
_LONGEST = timedelta(days=90)


class Reported(Protocol):
    """Progress as the SDK has it."""

    @property
    def fraction(self) -> float | None: ...
    @property
    def text(self) -> str: ...
    @property
    def reported_at(self) -> datetime | None: ...
    @property
    def remaining(self) -> timedelta | None: ...


def percent(progress: Reported) -> str:
    """Return the share that is done, or "" if it is not known. Cut, not rounded: 99.9% is not done."""
    return "" if progress.fraction is None else f"{int(progress.fraction * 100 + 1e-9)}%"


def time_left(progress: Reported, present: datetime) -> timedelta | None:
    """Return the estimated time left of a running job, or None without an estimate."""
    remaining, reported_at = progress.remaining, progress.reported_at
    if remaining is None or reported_at is None or progress.fraction == 1 or present - reported_at > _STALE:
        return None
    left = max(remaining - max(present - reported_at, timedelta(0)), timedelta(0))
    return left if left <= _LONGEST else None


def rest(progress: Reported, present: datetime) -> str:
    """Return the same in words, or ""."""
    left = time_left(progress, present)
    if left is None:
        return ""
    return f"about {_about(left)} left" if left >= _MINUTE else "less than a minute left"


def summary(progress: Reported, present: datetime, *, runs: bool = True) -> str:
    """Return the progress in one line. The estimate is left out if the job does not run."""
    parts = percent(progress), progress.text, rest(progress, present) if runs else ""
    return ", ".join(part for part in parts if part)


def _about(span: timedelta) -> str:
    for unit, name in ((_DAY, "d"), (_HOUR, "h")):
        if span >= 2 * unit:
            return f"{round(span / unit)}{name}"
    return f"{round(span / _MINUTE)}m"
