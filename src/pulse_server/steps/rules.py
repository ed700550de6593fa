"""Steps of jobs: finished parts of a handler, its sleeps, and the signals it waits for. ADR-0069"""

from __future__ import annotations

from typing import NamedTuple

from pulse_server.base.bounds import check_count, check_text
from pulse_server.base.errors import InvalidArgument
from pulse_server.jobs.rules import Step

MAX_STEP_NAME_LENGTH = 200
# The most signals that one step may wait for.
MAX_SIGNALS = 20


class Take(NamedTuple):
    """The answer to a look for a signal. `is_over`: the job has as many steps as it may have."""

    step: Step | None
    is_over: bool = False


class Signal(NamedTuple):
    """A signal to a job. The sender makes the id, so that it can repeat the signal."""

    id: str
    job_id: str
    name: str
    value: bytes


class Sent(NamedTuple):
    """A signal met an unfinished job. `is_stored`: False, if it was known or does not fit."""

    topic: str
    is_stored: bool
    is_awaited: bool
    """Whether the job waited for it."""
    is_ready: bool
    """Whether the job may be claimed. A claim may have passed it over while this locked its row."""
    is_over: bool
    """Whether the job has as many signals as it may have."""


class Swept(NamedTuple):
    """One batch of a sweep: how many rows it looked at and forgot, and the last job it came to."""

    looked_at: int
    forgotten: int
    reached: str | None


def check_step_name(name: str, field: str = "name") -> str:
    if not name:
        raise InvalidArgument(field, "is empty: give the step a name, such as 'fetch'.")
    return check_text(name, field, MAX_STEP_NAME_LENGTH)


def check_signal_name(name: str, field: str = "name") -> str:
    if not name:
        raise InvalidArgument(field, "is empty: name the signal, such as 'approved'.")
    if "\n" in name:
        raise InvalidArgument(field, "contains a newline, which separates the names of signals.")
    return check_text(name, field, MAX_STEP_NAME_LENGTH)


def check_signal_names(names: str, field: str) -> str:
    """Check the names of the signals that a step waits for, one per line."""
    each = names.split("\n")
    check_count(field, len(each), MAX_SIGNALS)
    for name in each:
        check_signal_name(name, field)
    return names


def too_many_steps(most: int) -> str:
    return (
        f"The job has {most} steps, the most that a job may have (PULSE_MAX_STEPS). Do more in one step, or "
        "make the rest another job."
    )


def too_large(name: str, size: int, most: int) -> str:
    return (
        f"Step {name!r} has {size} bytes, and the steps of a job may have {most} together "
        "(PULSE_MAX_STEP_BYTES). Store large data elsewhere, and a reference to it in the step."
    )


def too_many_signals(most: int, left: int = 0) -> str:
    """Return the refusal of a signal. `left`: how many more an operator could send."""
    return (
        f"The job has {most} signals, the most that a job may have{_beside(left)} (PULSE_MAX_STEPS). Send "
        "one signal for several events, or make the rest another job."
    )


def too_large_signal(name: str, size: int, most: int, left: int = 0) -> str:
    """Return the refusal of a signal. `left`: how many more bytes an operator could send."""
    return (
        f"Signal {name!r} has {size} bytes, and the signals of a job may have {most} together{_beside(left)} "
        "(PULSE_MAX_STEP_BYTES). Store large data elsewhere, and send a reference to it."
    )


def _beside(left: int) -> str:
    return f" beside {left} of operators" if left else ""
