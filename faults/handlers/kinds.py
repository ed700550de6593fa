"""A kind of handler, and how its jobs have to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import pulse
from pulse import JobStatus

F = TypeVar("F", bound=Callable[..., Any])

SOON = pulse.Backoff(first=timedelta(milliseconds=100), factor=1.0, longest=timedelta(seconds=1))
LIMIT = timedelta(milliseconds=300)
TIME_LIMIT = r"longer than its time limit"


@dataclass(frozen=True)
class Kind:
    """What is promised for the jobs of a topic."""

    topic: str
    ends: tuple[JobStatus, ...]
    errors: str
    """A pattern that each failed attempt matches. Empty if none may fail."""
    weight: float
    is_stuck: bool
    """Whether its handler may keep a worker from a clean end."""
    freezes: bool
    """Whether its handler keeps the interpreter, so that its worker dies."""
    is_process: bool


KINDS: dict[str, Kind] = {}
router = pulse.Router()


def kind(
    topic: str,
    *ends: JobStatus,
    errors: str = "",
    weight: float = 1.0,
    is_stuck: bool = False,
    freezes: bool = False,
    **options: Any,
) -> Callable[[F], F]:
    """Register a handler, and what its jobs promise."""
    KINDS[topic] = Kind(topic, ends, errors, weight, is_stuck, freezes, bool(options.get("process")))
    # A worker or a child that is killed costs its jobs an attempt: those that are to complete, or to wait for
    # their cancellation, have more.
    options.setdefault("max_attempts", 2 if ends == (JobStatus.DEAD_LETTERED,) else 12)
    options.setdefault("retry", SOON)
    return lambda function: router.job(topic, **options)(function) and function
