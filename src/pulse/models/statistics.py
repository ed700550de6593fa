"""What happened minute by minute, and how long it took."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pulse.models.times import time_of

if TYPE_CHECKING:
    from pulse.v1 import pulse_pb2 as pb


@dataclass(frozen=True, slots=True)
class Latency:
    """How long something took, in seconds. They come from buckets: each is right to within a fifth."""

    count: int
    """0: it did not happen, and the rest says nothing."""
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True)
class Minute:
    """What happened in one minute."""

    at: datetime | None
    submitted: int
    completed: int
    failed: int
    """Attempts, whatever became of their jobs."""
    retried: int
    dead_lettered: int
    canceled: int
    wait: Latency
    run: Latency


@dataclass(frozen=True, slots=True)
class Statistics:
    """What happened minute by minute: every one, oldest first. The last one is not over yet."""

    minutes: tuple[Minute, ...]
    wait: Latency
    """From due to claimed, in the whole span."""
    run: Latency
    """From claimed to reported, in the whole span."""


def statistics(response: pb.GetStatisticsResponse) -> Statistics:
    """Read the minutes off the wire."""
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
    """Read a latency off the wire."""
    return Latency(message.count, message.p50_seconds, message.p95_seconds, message.p99_seconds)
