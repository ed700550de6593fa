"""Groups minutes into the columns of a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from pulse import Latency, Minute

MINUTES_TOGETHER = {60: 1, 360: 5, 1_440: 20}
"""The minutes per column for each span: 60 to 72 columns."""
NO_LATENCY = Latency(0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The counts of consecutive minutes."""

    at: datetime
    minutes: int
    is_over: bool
    """False for the current one, which still changes."""
    submitted: int
    completed: int
    failed: int
    wait: Latency
    """Of the slowest minute: percentiles cannot be summed, and the worst matters."""
    run: Latency

    @property
    def until(self) -> datetime:
        return self.at + timedelta(minutes=self.minutes)

    @property
    def attempts(self) -> int:
        return self.completed + self.failed

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed; None if there were none."""
        return self.failed / self.attempts if self.attempts else None


def buckets_of(minutes: Sequence[Minute], together: int) -> list[Bucket]:
    """Return the minutes in groups that start at round times, oldest first.

    An incomplete first group is left out: it would look like a drop.
    """
    timed = [(minute.at, minute) for minute in minutes if minute.at is not None]
    groups = [
        list(group)
        for _, group in groupby(timed, key=lambda pair: int(pair[0].timestamp()) // 60 // together)
    ]
    if len(groups) > 1 and len(groups[0]) < together:
        del groups[0]
    return [
        _bucket(group[0][0], [minute for _, minute in group], together, is_over=place < len(groups) - 1)
        for place, group in enumerate(groups)
    ]


def _bucket(at: datetime, minutes: Sequence[Minute], together: int, *, is_over: bool) -> Bucket:
    return Bucket(
        at=at,
        minutes=together,
        is_over=is_over,
        submitted=sum(minute.submitted for minute in minutes),
        completed=sum(minute.completed for minute in minutes),
        failed=sum(minute.failed for minute in minutes),
        wait=_slowest([minute.wait for minute in minutes]),
        run=_slowest([minute.run for minute in minutes]),
    )


def _slowest(latencies: Sequence[Latency]) -> Latency:
    measured = [latency for latency in latencies if latency.count]
    if not measured:
        return NO_LATENCY
    return Latency(
        sum(latency.count for latency in measured),
        max(latency.p50 for latency in measured),
        max(latency.p95 for latency in measured),
        max(latency.p99 for latency in measured),
    )
