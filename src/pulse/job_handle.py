"""What an enqueue answers with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job that is stored."""

    id: str
    topic: str
    duplicate: bool = False
    """True when the job had been there before: the same key or the same `job_id` was used earlier.

    A repeat that the SDK itself sent after a lost answer is not a duplicate.
    """
