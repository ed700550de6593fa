"""Puts minutes together into as many columns as a chart can show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from pulse import Latency, Minute

MINUTES_TOGETHER = {60: 1, 360: 5, 1_440: 20}
"""How many minutes are one column, for each span that can be chosen: about 60 to 72 columns each."""
NO_LATENCY = Latency(0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Bucket:
    """What happened in some minutes in a row."""

    at: datetime
    minutes: int
    is_over: bool
    """False: it is the current one, and more will happen in it."""
    submitted: int
    completed: int
    failed: int
    wait: Latency
    """Of the slowest of the minutes: percentiles cannot be added up, and the worst is what matters."""
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
    """Return the minutes in groups that begin at round times, oldest first.

    A first group that the span cuts off is left out: it would look like a drop.
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
