"""What a visitor is refused, before any page is asked."""

from __future__ import annotations


class Refused(Exception):
    """The request is not served: an HTTP status, and a sentence that says why and what to do."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class LoginNeeded(Exception):
    """Nobody is logged in, or the session has ended."""
