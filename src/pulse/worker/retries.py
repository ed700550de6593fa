"""Decides what a failure of a handler means for its job, by the handler's options."""

from __future__ import annotations

import inspect
import logging
from dataclasses import replace
from datetime import timedelta

from pulse.durations import check_duration
from pulse.errors import InvalidArgument
from pulse.handlers.handler import Handler
from pulse.handlers.options import NO_OPTIONS, Backoff, RetryDelay
from pulse.log_text import in_a_line
from pulse.outcomes import Discard, Failed, Retry, failure
from pulse.payload import UndecodableArgs

logger = logging.getLogger("pulse.worker")


def judge(error: BaseException, handler: Handler, attempt: int) -> Failed:
    """Return the outcome of a failed attempt. `attempt` is its number without those that were snoozed.

    What the handler raised to choose an outcome comes first, then `discard_on`, then `retry_on`. The delays
    of a `Backoff` are the server's work: it knows it as the policy of the topic.
    """
    if isinstance(error, UndecodableArgs):
        # Another try reads the same bytes. During a rolling deploy it may reach a worker that can read them.
        return Failed(str(error), discard=not handler.retry_undecodable)
    failed, options = failure(error), handler.options
    if _matches(error, (Discard,)):
        return replace(failed, discard=True)  # of a task group too: a step of it cannot be stored, say
    if options is NO_OPTIONS or isinstance(error, Retry):
        return failed
    if _matches(error, options.discard_on) or not (not options.retry_on or _matches(error, options.retry_on)):
        return replace(failed, discard=True)
    if options.retry is None or isinstance(options.retry, Backoff):
        return failed
    delay = _delay(options.retry, handler.topic, attempt, error)
    return failed if delay is None else replace(failed, retry_after=delay, retry_after_is_policy=True)


def _matches(error: BaseException, classes: tuple[type[BaseException], ...]) -> bool:
    """True if the error is one of these. A group is, if one of its errors is: a TaskGroup raises a group."""
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
        # No error: of those Sentry makes events, and this attempt has its own line.
        logger.warning(
            "The retry function of %r failed, so the server's backoff applies: %s",
            topic,
            in_a_line(str(problem) or type(problem).__name__),
            exc_info=None if isinstance(problem, InvalidArgument) else problem,
        )
        return None
    return delay
