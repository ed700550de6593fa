"""The result of an enqueue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A stored job."""

    id: str
    topic: str
    duplicate: bool = False
    """True if the job existed before: the same key or the same `job_id` was used earlier.

    A repeat that the SDK sent after a lost answer is not a duplicate.
    """
