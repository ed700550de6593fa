"""The outcome of a job whose handler returned: its result, and its steps."""

from __future__ import annotations

import logging

from pulse.error_text import in_a_line
from pulse.errors import InvalidArgument
from pulse.handlers.context import steps_of
from pulse.handlers.workflows import completes_in_transaction
from pulse.outcomes import SUCCEEDED, Discard, Outcome, Succeeded
from pulse.payload import encode_result
from pulse.worker.handler_errors import failed
from pulse.worker.held_jobs import HeldJob, LeaseTerms

logger = logging.getLogger("pulse.worker")


def succeeded(job: HeldJob, value: object, terms: LeaseTerms) -> Outcome | None:
    """Return the outcome of a handler that returned this, and not None.

    A value that cannot be stored discards the job: a further attempt would return the same.
    """
    if completes_in_transaction(job.context):
        logger.warning(
            "Job %s (%s) returned a value after ctx.complete, and it is dropped: give it to ctx.complete.",
            job.job_id,
            in_a_line(job.handler.topic),
        )
        return SUCCEEDED
    most = terms.max_result_bytes
    if not most:
        _warn_of_old_server(job, terms)
        return SUCCEEDED
    return encoded(job, value, most)


def encoded(job: HeldJob, value: object, most: int) -> Outcome | None:
    """Return the success with its encoded result, or the failure if it cannot be encoded or is too long.

    `most` is in bytes. 0: no bound.
    """
    try:
        result = encode_result(value)
    except InvalidArgument as error:
        return failed(job, Discard(error.message))
    if most and len(result) > most:
        return failed(
            job,
            Discard(
                f"The handler returned a result of {len(result)} bytes; {most} are allowed at the most. "
                "Store large data elsewhere and return a reference to it, or raise PULSE_MAX_RESULT of "
                "pulsed."
            ),
        )
    return Succeeded(result)


def _warn_of_old_server(job: HeldJob, terms: LeaseTerms) -> None:
    topic = job.handler.topic
    if topic not in terms.dropped_results:
        terms.dropped_results.add(topic)
        logger.warning(
            "The handler of %s returns a result, which this version of pulsed does not store: it is dropped.",
            in_a_line(topic),
        )


# Names of steps in a warning.
_NAMED = 10


class SuspensionLost(Exception):
    """A handler returned after `ctx.sleep` or `ctx.wait_for` had ended its attempt."""


def concluded(job: HeldJob, outcome: Outcome | None) -> Outcome | None:
    """Return the outcome. A handler that returned after its suspension has failed: it would skip the wait."""
    steps = steps_of(job.context)
    if steps is None or not isinstance(outcome, Succeeded):
        return outcome
    if steps.suspension is not None:
        return failed(
            job,
            SuspensionLost(
                f"The handler went on after {steps.suspension.what} had ended its attempt: it catches "
                "BaseException, or drops the error of a task. Raise pulse.Suspension again."
            ),
        )
    if forgotten := steps.forgotten():
        logger.warning(
            "Job %s (%s) did not ask for steps that an earlier attempt has stored: %s. Its code has changed.",
            job.job_id,
            in_a_line(job.handler.topic),
            in_a_line(", ".join(forgotten[:_NAMED])),
        )
    return outcome
