"""How long a job waits for its next attempt. transitions.sql has the same rules; contract tests compare."""

from __future__ import annotations

from datetime import timedelta

# Three years. Redrives grant further attempts without an end, and the square must fit into a number.
MOST_ATTEMPTS_SQUARED = 10_000
# From a cancel to the first moment at which a retry may be claimed. Longer than a worker takes to start what
# it holds, so that none starts the job after another has completed it. ADR-0041
CANCELED_REST = timedelta(seconds=2)


def retry_delay(attempts: int) -> timedelta:
    """The wait after that many attempts: attempts² seconds, and no longer than three years."""
    return timedelta(seconds=min(attempts, MOST_ATTEMPTS_SQUARED) ** 2)
