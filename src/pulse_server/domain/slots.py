"""Free slots of workers: what a claim fills, and what a hand-over takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pulse_server.domain.jobs import ClaimedJob

# Payload bytes per claim. More would only wait in memory until it can be sent (docs/adr/0038).
CLAIM_BYTES = 8 * 1024 * 1024


class Slots(NamedTuple):
    """Free slots: one entry per wanted job, each an index into `workers`, in dispatch order.

    `confirms` states for each worker whether it can send a heartbeat before it starts a job. A
    claim stops early once its payloads reach `most_bytes`. A claim that fills all slots uses
    `packed` instead of `order`, unless `packed` is empty or the payloads reach `packed_bytes`.
    docs/figures.md#dealing-jobs-to-workers

    In a claim with limits, jobs in the first `running` slots would start at once, and other jobs
    would wait in their workers. None: all jobs would start at once. docs/figures.md#limited-jobs-ahead
    """

    workers: Sequence[str]
    confirms: Sequence[bool]
    order: Sequence[int]
    most_bytes: int = CLAIM_BYTES
    packed: Sequence[int] = ()
    packed_bytes: int = 0
    running: int | None = None

    def is_filled_by(self, jobs: Sequence[ClaimedJob]) -> bool:
        """Whether more ready jobs may remain after a claim that returned these."""
        return len(jobs) == len(self.order) or sum(len(job.payload) for job in jobs) >= self.most_bytes


class Taker(NamedTuple):
    """A worker with a free slot for one job. `confirms` as in Slots."""

    worker_id: str
    confirms: bool
