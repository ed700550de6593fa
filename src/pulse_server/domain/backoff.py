"""How long a failed job waits. The same formula stands in transitions.sql; a contract test compares them."""

from __future__ import annotations

from datetime import timedelta


def retry_delay(attempts: int) -> timedelta:
    """The wait after that many attempts: attempts² seconds."""
    return timedelta(seconds=attempts * attempts)
