"""The delay before a job's next attempt, reckoned apart from the database."""

from __future__ import annotations

from datetime import timedelta
from math import exp, log

from pulse.topic_settings import Backoff
from pulse_server.base import tuning
from pulse_server.jobs.reports import rest_of_canceled

# Three years. Retries grant further attempts without limit, and the square must fit into a number.
MOST_ATTEMPTS_SQUARED = 10_000
# From a cancel in a worker to the first moment at which a retry may be claimed.
CANCELED_REST = rest_of_canceled(tuning.LEASE_TTL)


def retry_delay(attempts: int, backoff: Backoff | None = None) -> timedelta:
    """The delay after that many attempts: attempts² seconds, at most three years, unless there is a backoff.

    The middle of the range that its jitter draws from.
    """
    if backoff is not None:
        exponent = min((attempts - 1) * log(backoff.factor), 200)
        return timedelta(
            seconds=min(backoff.longest.total_seconds(), backoff.first.total_seconds() * exp(exponent))
        )
    return timedelta(seconds=min(attempts, MOST_ATTEMPTS_SQUARED) ** 2)
