"""The outcomes of an attempt, and the exceptions by which a handler chooses one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pulse.error_text import describe
from pulse.messages import check_duration


class Retry(Exception):
    """Raise it in a handler to retry the job after a delay of your choice.

    It counts as an attempt, like any failure: on its last attempt the job becomes a dead letter. Without
    `after` the server's backoff applies.
    """

    def __init__(self, after: timedelta | None = None, reason: str = "") -> None:
        if after is not None:
            check_duration("Retry(after=…)", after, may_be_zero=True)
        super().__init__(reason or "The handler asked to be run again.")
        self.after = after
        self.reason = reason


class Discard(Exception):
    """Raise it in a handler to make the job a dead letter now, even if it has attempts left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "The handler discarded the job.")
        self.reason = reason


class Snooze(Exception):
    """Raise it in a handler to run the job later: "not now". The attempt is not counted.

    A job can be snoozed 1,000 times; then it becomes a dead letter.
    """

    def __init__(self, delay: timedelta, reason: str = "") -> None:
        check_duration("Snooze(delay)", delay)
        super().__init__(reason or f"The handler snoozed the job for {delay}.")
        self.delay = delay
        self.reason = reason


class Cancelled(BaseException):
    """Raised in a sync handler that has to stop: its job was canceled, its lease lost, or the worker stops.

    `ctx.raise_if_cancelled()` raises it too. Like asyncio.CancelledError it is not an Exception: an
    `except Exception` in a loop must not keep the handler running.
    """

    def __init__(self, message: str = "The job should stop.") -> None:
        super().__init__(message)


class TimedOut(Cancelled):
    """Raised in a sync handler that has reached its time limit."""

    def __init__(self, message: str = "The attempt took longer than its time limit.") -> None:
        super().__init__(message)


class Suspension(BaseException):
    """Raised by `ctx.sleep`, `ctx.wait_for` and `ctx.wait_for_any` to end the attempt.

    It is no failure and costs no attempt. Like Cancelled it is not an Exception. A handler that catches it
    must raise it again.
    """

    def __init__(self, step: str, signal: str, delay: timedelta | None) -> None:
        names = [repr(name) for name in signal.split("\n")]
        verb = "wait_for_any" if len(names) > 1 else "wait_for"
        self.what = f"ctx.{verb}({', '.join(names)})" if signal else "ctx.sleep()"
        super().__init__(
            f"The job waits for the signal {' or '.join(names)}."
            if signal
            else f"The job sleeps for {delay}."
        )
        self.step = step
        self.signal = signal
        self.delay = delay


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""

    result: bytes | None = None
    """The encoded result. None: it returned None."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt failed. The server retries the job or makes it a dead letter."""

    error: str
    retry_after: timedelta | None = None
    discard: bool = False
    timed_out: bool = False
    """Whether the attempt ran into its time limit."""
    retry_after_is_policy: bool = False
    """Whether `retry_after` comes from the handler's options. An operator's backoff wins over it."""


@dataclass(frozen=True, slots=True)
class Refused(Failed):
    """The attempt failed because the server refused to read the report of its outcome."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to run later. The server runs the job again, and the attempt is not counted."""

    delay: timedelta
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Suspended:
    """The handler sleeps or waits for a signal. The server runs the job again then. It costs no attempt."""

    step: str
    signal: str
    """The signals that end the wait, one in each line. Empty: it sleeps."""
    delay: timedelta | None
    """The longest that it waits. None: until the signal comes."""


SUCCEEDED = Succeeded()
Outcome = Succeeded | Failed | Snoozed | Suspended


def suspension_in(error: BaseException) -> Suspension | None:
    """Return the suspension, also of a task group that it has ended."""
    if isinstance(error, Suspension):
        return error
    if isinstance(error, BaseExceptionGroup):
        suspensions, rest = error.split(Suspension)
        if suspensions is not None and rest is None:
            return suspension_in(suspensions.exceptions[0])
    return None


def is_cancelled(error: BaseException) -> bool:
    """Whether the handler was stopped, also in the tasks of a task group."""
    return isinstance(error, Cancelled) or (
        isinstance(error, BaseExceptionGroup) and error.split(Cancelled)[1] is None
    )


def failure(error: BaseException) -> Failed:
    """Return the outcome for an exception of the handler."""
    if isinstance(error, Retry):
        return Failed(describe(error, headline=str(error)), retry_after=error.after)
    if isinstance(error, Discard):
        return Failed(describe(error, headline=str(error)), discard=True)
    return Failed(describe(error))
