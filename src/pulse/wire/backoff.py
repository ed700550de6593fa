"""Jittered exponential waiting."""

from __future__ import annotations

from random import uniform


class Backoff:
    """Waits that double from the first to the longest, each drawn at random from its upper half.

    The jitter keeps a fleet that lost its server at one instant from coming back at one instant.
    """

    __slots__ = ("_first_seconds", "_longest_seconds", "_tries")

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._tries = 0

    def next_seconds(self) -> float:
        """Return how long to wait before the next try."""
        # The exponent is capped so that a year of failures does not overflow a float.
        ceiling = min(self._longest_seconds, self._first_seconds * 2 ** min(self._tries, 32))
        self._tries += 1
        return uniform(ceiling / 2, ceiling)

    def reset(self) -> None:
        """Begin again with the first wait."""
        self._tries = 0
