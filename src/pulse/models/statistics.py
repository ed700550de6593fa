"""Counts and latencies for each minute."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of a duration, in seconds. They come from buckets: each is accurate to 20%."""

    count: int
    """If 0, the percentiles have no meaning."""
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Minute:
    """The counts of one minute."""

    at: datetime | None
    submitted: int
    completed: int
    failed: int
    """Failed attempts."""
    retried: int
    dead_lettered: int
    canceled: int
    wait: Latency
    run: Latency


@dataclass(frozen=True, slots=True)
class Statistics:
    """Every minute of a span, oldest first. The last one is still running."""

    minutes: tuple[Minute, ...]
    wait: Latency
    """From due to claimed, over the whole span."""
    run: Latency
    """From claimed to reported, over the whole span."""


def statistics(response: pb.GetStatisticsResponse) -> Statistics:
    """Return the statistics in a message."""
    return Statistics(
        tuple(
            Minute(
                at=time_of(minute, "at"),
                submitted=minute.submitted,
                completed=minute.completed,
                failed=minute.failed,
                retried=minute.retried,
                dead_lettered=minute.dead_lettered,
                canceled=minute.canceled,
                wait=latency(minute.wait),
                run=latency(minute.run),
            )
            for minute in response.minutes
        ),
        latency(response.wait),
        latency(response.run),
    )


def latency(message: pb.Latency) -> Latency:
    """Return the latency in a message."""
    return Latency(message.count, message.p50_seconds, message.p95_seconds, message.p99_seconds)
