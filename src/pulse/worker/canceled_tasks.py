"""Handlers whose task was canceled, but not by the worker: by their own code, or by a loop that ends."""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable

from pulse import tuning
from pulse.error_text import clean
from pulse.handlers.log_records import records_of
from pulse.outcomes import Failed, Outcome
from pulse.worker.handler_errors import failed, log_failure, outcome_of
from pulse.worker.held_jobs import HeldJob


class LoopEnded(Exception):
    """The event loop was ended by code that runs in it, while the handler ran."""


class CanceledTasks:
    """Fails the jobs whose own code canceled their task. Nothing else would end their claims.

    An event loop that shuts down cancels the worker too. It stops within a moment, and settles the jobs then.
    """

    def __init__(
        self,
        report: Callable[[HeldJob], None],
        fatal: Callable[[BaseException], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._report = report
        self._fatal = fatal
        self._is_stopping = is_stopping

    def outcome_of(self, job: HeldJob, own: contextvars.Context, error: BaseException) -> Outcome | None:
        """Return the outcome to report now, or None. Call it in the handler's task."""
        outcome = own.run(outcome_of, job, error, self._fatal)
        if job.is_interrupted and not job.context.cancelled:
            loop = asyncio.get_running_loop()
            loop.call_later(tuning.CANCELED_SECONDS, own.run, self._fail, job, error)
        return outcome

    def _fail(self, job: HeldJob, error: BaseException) -> None:
        job.span = None  # it has ended
        if not self._is_stopping() and (outcome := failed(job, error)) is not None:
            job.is_interrupted = False
            job.outcome = outcome
            self._report(job)


def breaking_error() -> BaseException | None:
    """Return the error with which code in the event loop has ended it, if one has. Call it in a fresh task.

    `loop.stop()` and `sys.exit()` in a callback end asyncio.run(), which cancels all tasks while it passes
    the error on: it is the one that is being handled. A program that ends by itself leaves none, or another.
    """
    error = sys.exc_info()[1]
    return error if isinstance(error, SystemExit | RuntimeError) else None


def failed_with_the_loop(job: HeldJob, error: BaseException) -> Outcome:
    """Return the outcome of a handler whose event loop has ended with this error.

    It costs an attempt: the job itself may have ended the loop, and would end that of the next worker.
    """
    ended = LoopEnded(
        f"The event loop ended while the handler ran: {error!r}. `loop.stop()` ends it, and so does "
        "`sys.exit()` in a callback."
    )
    outcome = Failed(clean(f"LoopEnded: {ended}"))
    with records_of(job.context):
        log_failure(job, ended, outcome)
    return outcome
