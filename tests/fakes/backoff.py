"""The delays before a job's next attempt in the fake store. Contract tests compare them with Postgres."""

from __future__ import annotations

from datetime import timedelta

# Three years. Retries grant further attempts without limit, and the square must fit into a number.
MOST_ATTEMPTS_SQUARED = 10_000
# From a cancel in a worker to the first moment at which a retry may be claimed. ADR-0041
CANCELED_REST = timedelta(seconds=2)


def retry_delay(attempts: int) -> timedelta:
    """The delay after that many attempts: attempts² seconds, at most three years."""
    return timedelta(seconds=min(attempts, MOST_ATTEMPTS_SQUARED) ** 2)
