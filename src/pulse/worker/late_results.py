"""Results that the server took late, when it may have made the same claim again."""

from __future__ import annotations

from collections.abc import Iterable

from pulse.worker.clock import lease_clock
from pulse.worker.held_jobs import HeldJob

# Longer than a delivery can be under way and still start: one that is older than a second is confirmed first.
_KEPT_SECONDS = 10.0


class LateResults:
    """Remembers claims whose results were accepted after their lease may have ended.

    An attempt that no heartbeat has confirmed does not count. So once its lease has ended, the server may
    make the same claim again: the same job, worker and attempt. The late result ends this second claim, whose
    delivery may be under way by then. It must not start.
    """

    def __init__(self) -> None:
        self._taken_at: dict[tuple[str, int], float] = {}

    def __bool__(self) -> bool:
        return bool(self._taken_at)

    def __contains__(self, claim: tuple[str, int]) -> bool:
        return claim in self._taken_at

    def add(self, jobs: Iterable[HeldJob]) -> None:
        """Remember those of the jobs that are late. Their results were accepted."""
        now = lease_clock()
        for job in jobs:
            # Not the end of the lease, which a heartbeat of the second claim moves. This is never after it.
            if now >= job.start_by:
                self._taken_at[job.job_id, job.attempt] = now
        while self._taken_at:
            oldest = next(iter(self._taken_at))
            if now < self._taken_at[oldest] + _KEPT_SECONDS:
                break
            del self._taken_at[oldest]
