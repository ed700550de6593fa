"""The outcome of a job whose handler raised."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pulse.error_text import clean
from pulse.outcomes import Cancelled, Discard, Outcome, Retry, Snooze, Snoozed
from pulse.payload import UndecodableArgs
from pulse.worker.held_jobs import HeldJob
from pulse.worker.retries import judge
from pulse.worker.signals import interrupts_main_thread

logger = logging.getLogger("pulse.worker")


def outcome_of(job: HeldJob, error: BaseException, fatal: Callable[[BaseException], None]) -> Outcome | None:
    """Return the outcome to report, or None if there is none. Call it in the handler's task and contextvars.

    `sys.exit()` and other errors of the handler's own fail its job. A Ctrl-C that no signal handler took, and
    that interrupted this handler by chance, is passed to `fatal`: the worker drains.
    """
    if isinstance(error, asyncio.CancelledError):
        # The task was canceled: by the worker, or by an event loop that shuts down. A handler can also raise
        # this itself, when something that it awaits was canceled: that is a failure.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            job.is_interrupted = True
            return None
    elif isinstance(error, KeyboardInterrupt) and job.handler.is_async and interrupts_main_thread():
        fatal(error)
    return _failed(job, error)


def _failed(job: HeldJob, error: BaseException) -> Outcome | None:
    if job.stop_reason:
        return None
    if isinstance(error, Cancelled) and job.context.cancelled:
        job.is_interrupted = True
        return None
    if isinstance(error, Snooze):
        logger.info("Job %s (%s) is snoozed for %s: %s", job.job_id, job.handler.topic, error.delay, error)
        return Snoozed(error.delay, clean(str(error)))
    outcome = judge(error, job.handler, job.attempt - job.assignment.snoozes)
    if job.span is not None:
        job.span.fail(error, outcome)
    expected = isinstance(error, UndecodableArgs | Retry | Discard)
    logger.log(
        logging.INFO if isinstance(error, Retry) else logging.WARNING,
        "Job %s (%s) failed on attempt %d of %d: %s",
        job.job_id,
        job.handler.topic,
        job.attempt,
        job.assignment.max_attempts,
        outcome.error.partition("\n")[0],
        exc_info=None if expected else error,
    )
    return outcome
