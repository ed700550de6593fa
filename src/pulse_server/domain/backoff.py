"""How long a failed job waits. The same formula stands in transitions.sql; a contract test compares them."""

from __future__ import annotations

from datetime import timedelta

# Three years. Redrives grant further attempts without an end, and the square must fit into a number.
MOST_ATTEMPTS_SQUARED = 10_000


def retry_delay(attempts: int) -> timedelta:
    """The wait after that many attempts: attempts² seconds, and no longer than three years."""
    return timedelta(seconds=min(attempts, MOST_ATTEMPTS_SQUARED) ** 2)
