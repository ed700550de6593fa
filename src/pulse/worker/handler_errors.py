"""The outcome of a job whose handler raised, by the error and the options of the handler."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from pulse.error_text import clean, describe, in_a_line, is_too_long_to_log, with_class
from pulse.errors import ClaimLost, InvalidArgument
from pulse.handlers.context import is_lost
from pulse.handlers.handler import NO_OPTIONS, Handler, HandlerOptions, RetryDelay
from pulse.handlers.workflows import completes_in_transaction
from pulse.messages import check_duration
from pulse.outcomes import (
    Cancelled,
    Discard,
    Failed,
    Outcome,
    Retry,
    Snooze,
    Snoozed,
    Suspended,
    TimedOut,
    failure,
    is_cancelled,
    suspension_in,
)
from pulse.payload import UndecodableArgs
from pulse.supervision.processes import interrupts_main_thread
from pulse.topic_settings import Backoff
from pulse.worker.child_messages import RanInProcess
from pulse.worker.held_jobs import HeldJob

logger = logging.getLogger("pulse.worker")


def _bound_exception(record: logging.LogRecord) -> bool:
    """Make formatters write the stored text of a long error. The exception stays attached."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and is_too_long_to_log(error):
        record.exc_text = describe(error)
    return True


logger.addFilter(_bound_exception)


def outcome_of(job: HeldJob, error: BaseException, fatal: Callable[[BaseException], None]) -> Outcome | None:
    """Return the outcome to report, or None if there is none. Call it in the handler's task and contextvars.

    `sys.exit()` and other errors of the handler's own fail its job. A Ctrl-C that no signal handler took, and
    that interrupted this handler by chance, is passed to `fatal`: the worker drains.
    """
    if isinstance(error, RanInProcess):
        return _of_process(job, error)
    if (suspension := suspension_in(error)) is not None:
        logger.debug("Job %s (%s): %s", job.job_id, in_a_line(job.handler.topic), suspension)
        return Suspended(suspension.step, suspension.signal, suspension.delay)
    if job.limit is not None and job.limit.is_timed_out and not isinstance(error, Retry | Discard | Snooze):
        return _timed_out(job, error)
    if isinstance(error, asyncio.CancelledError):
        # The task was canceled: by the worker, by an event loop that shuts down, or by code of the handler
        # (see Runners). A handler can also raise this itself, when something that it awaits was
        # canceled: that is a failure.
        if _task_is_canceled():
            job.is_interrupted = True
            return None
    elif isinstance(error, KeyboardInterrupt) and job.handler.runs_in_loop and interrupts_main_thread():
        fatal(error)
    return failed(job, error)


def _task_is_canceled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False  # in a child process, whose event loop has returned
    return task is not None and task.cancelling() > 0


def given_up(job: HeldJob, stack: str) -> Outcome | None:
    """Return the outcome to report for a handler that does not end. None if its claim is lost anyway."""
    if job.limit is None or not job.limit.is_timed_out:
        return None
    sentence = f"{_over_limit(job)} It did not end when it was interrupted, and may still run."
    text = with_class(f"TimedOut: {sentence}\n\n{stack}", TimedOut)
    outcome = Failed(clean(text), timed_out=True)
    if not job.stop_reason:
        # Called outside of the handler: by a timer, or in another thread.
        own = job.limit.own or contextvars.copy_context()
        own.copy().run(log_failure, job, TimedOut(sentence), outcome)
    return outcome


def _of_process(job: HeldJob, error: RanInProcess) -> Outcome | None:
    outcome = error.outcome
    if outcome is None:
        job.is_interrupted = True
    elif isinstance(outcome, Failed) and job.span is not None:
        job.span.fail(error, outcome)
    return outcome


def _timed_out(job: HeldJob, error: BaseException) -> Outcome | None:
    if job.stop_reason:
        return None
    timed_out = TimedOut(_over_limit(job)).with_traceback(error.__traceback__)
    if not isinstance(error, Cancelled | asyncio.CancelledError):
        timed_out.__cause__ = error
    outcome = replace(judge(timed_out, job.handler, job.attempt), timed_out=True)
    if outcome.discard and not isinstance(timed_out, job.handler.options.discard_on):
        outcome = replace(outcome, discard=False)  # retry_on names errors that the handler raises
    if job.span is not None:
        job.span.fail(timed_out, outcome)
    log_failure(job, timed_out, outcome)
    return outcome


def _over_limit(job: HeldJob) -> str:
    assert job.limit is not None
    return f"The attempt took longer than its time limit of {timedelta(seconds=job.limit.seconds)}."


def failed(job: HeldJob, error: BaseException) -> Outcome | None:
    """Return the outcome of a handler that raised this on its own. None if its claim is lost."""
    if job.stop_reason:
        _log_after_stop(job, error)
        return None
    if is_cancelled(error) and (job.context.cancelled or is_lost(job.context)):
        job.is_interrupted = True
        return None
    if isinstance(error, Snooze):
        topic, reason = in_a_line(job.handler.topic), in_a_line(str(error))
        logger.info("Job %s (%s) is snoozed for %s: %s", job.job_id, topic, error.delay, reason)
        return Snoozed(error.delay, clean(str(error)))
    outcome = judge(error, job.handler, job.attempt)
    if job.span is not None:
        job.span.fail(error, outcome)
    if isinstance(error, ClaimLost):  # of ctx.complete: the server has decided about the job
        logger.info("Job %s (%s): %s", job.job_id, in_a_line(job.handler.topic), in_a_line(error.message))
    else:
        log_failure(job, error, outcome)
    return outcome


def _log_after_stop(job: HeldJob, error: BaseException) -> None:
    """Log an error that a handler raised after it was stopped. It is not reported to a server."""
    if is_cancelled(error) or isinstance(error, asyncio.CancelledError | Retry | Discard | Snooze):
        return
    logger.warning(
        "Job %s (%s) was stopped, and its handler failed then, which no server stores: %s",
        job.job_id,
        in_a_line(job.handler.topic),
        in_a_line(describe(error).partition("\n")[0]),
        exc_info=error,
    )


def log_failure(job: HeldJob, error: BaseException, outcome: Failed) -> None:
    """Log a failed attempt: as an error if it is the last one, with the exception attached.

    Sentry and others make an event of an error, and of nothing below it: one for a job, not one for each try.
    """
    is_final = outcome.discard or job.attempt >= job.assignment.max_attempts
    if is_final:
        level, then = logging.ERROR, "it is a dead letter"
    else:
        level, then = logging.INFO if isinstance(error, Retry) else logging.WARNING, "it will be retried"
    if completes_in_transaction(job.context):
        then += " unless the transaction of ctx.complete was committed"
    logger.log(
        level,
        "Job %s (%s) failed on attempt %d of %d, %s: %s",
        job.job_id,
        in_a_line(job.handler.topic),
        job.attempt,
        job.assignment.max_attempts,
        then,
        in_a_line(outcome.error.partition("\n")[0]),
        exc_info=_to_attach(error) if is_final or not isinstance(error, UndecodableArgs | Retry) else None,
    )


def _to_attach(error: BaseException) -> BaseException | tuple[type, BaseException, None]:
    # The handler has not run: the lines of arguments that cannot be read are all of the SDK.
    return (type(error), error, None) if isinstance(error, UndecodableArgs) else error


def judge(error: BaseException, handler: Handler, attempt: int) -> Failed:
    """Return the outcome of a failed attempt. `attempt` is its number without snoozed attempts.

    A `Discard` or `Retry` of the handler comes first, then `discard_on`, then `retry_on`. The
    server applies the delays of a `Backoff`, as the backoff of the topic.
    """
    if isinstance(error, UndecodableArgs):
        # Another try reads the same bytes. During a rolling deploy it may reach a worker that can read them.
        text = clean(with_class(str(error), UndecodableArgs, is_named=False))
        return Failed(text, discard=not handler.retry_undecodable)
    failed, options = failure(error), handler.options
    if is_discarded(error, options):
        return replace(failed, discard=True)
    if isinstance(error, Retry) or options.retry is None or isinstance(options.retry, Backoff):
        return failed
    delay = _delay(options.retry, handler.topic, attempt, error)
    return failed if delay is None else replace(failed, retry_after=delay, retry_after_is_policy=True)


def is_discarded(error: BaseException, options: HandlerOptions) -> bool:
    """True if this error makes the job a dead letter, whatever attempts are left."""
    if _matches(error, (Discard,)):
        return True  # also in a task group
    if options is NO_OPTIONS or isinstance(error, Retry):
        return False
    if _matches(error, options.discard_on):
        return True
    return bool(options.retry_on) and not _matches(error, options.retry_on)


def _matches(error: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    """True if the error, or an error in its group, matches. A TaskGroup raises a group."""
    if isinstance(error, classes):
        return True
    return isinstance(error, BaseExceptionGroup) and any(
        _matches(member, classes) for member in error.exceptions
    )


def _delay(retry: RetryDelay, topic: str, attempt: int, error: BaseException) -> timedelta | None:
    """Return the delay that the function chose. None if it failed: then the server's backoff applies."""
    try:
        delay = retry(attempt, error)
        if inspect.iscoroutine(delay):
            delay.close()
            raise InvalidArgument("it is an async function; write a plain one.")
        check_duration("its result", delay, may_be_zero=True)
    except BaseException as problem:  # whatever it raises, the failure of the job is reported
        # A warning, not an error: Sentry makes events of errors, and this attempt has its own line.
        logger.warning(
            "The retry function of %r failed, so the server's backoff applies: %s",
            topic,
            in_a_line(str(problem) or type(problem).__name__),
            exc_info=None if isinstance(problem, InvalidArgument) else problem,
        )
        return None
    return delay
