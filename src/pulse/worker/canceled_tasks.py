"""Handlers whose task was canceled, but not by the worker: by their own code, or by a loop that ends."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

from pulse import tuning
from pulse.outcomes import Outcome
from pulse.worker.handler_errors import failed, outcome_of
from pulse.worker.held_jobs import HeldJob


class CanceledTasks:
    """Fails the jobs whose own code canceled their task. Nothing else would end their claims.

    An event loop that shuts down cancels the worker too. It stops within a moment, and releases the jobs.
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
