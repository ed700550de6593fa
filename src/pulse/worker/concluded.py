"""The end of an attempt that has used steps."""

from __future__ import annotations

import logging

from pulse.handlers.context import steps_of
from pulse.log_text import in_a_line
from pulse.outcomes import Outcome, Succeeded
from pulse.worker.handler_errors import failed
from pulse.worker.held_jobs import HeldJob

logger = logging.getLogger("pulse.worker")

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
