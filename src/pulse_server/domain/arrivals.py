"""What applications stored or completed in transactions of their own, as the servers hear of it. ADR-0075"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pulse_server.domain.jobs import Claim, Level


class Arrival(NamedTuple):
    """One call of a function of the interface whose transaction has been committed."""

    topic: str
    jobs: int
    """How many are new. 0: the job was replaced, or completed."""
    ids: Sequence[str]
    """The new jobs; of many, the first."""
    level: Level | None = None
    """Where jobs became ready. None: nowhere."""
    completed: Claim | None = None
    """The claim that completed the job."""
    ran_seconds: float = 0.0
