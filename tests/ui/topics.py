"""Topics and workers to look at, as plain data."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pulse import DispatchStatus, HeldJob, Rates, SchedulerStatus, TopicInfo, WorkerInfo
from pulse_ui.overview.charts import NO_LATENCY

NOW = datetime(2024, 5, 6, 9, 0, tzinfo=UTC)
NO_RATES = Rates(0, 0, 0, 0)
OPEN = DispatchStatus(paused=False, reason="", paused_at=None, topics={})
ON_TIME = SchedulerStatus(active=1, paused=0, next_run_at=None, late_seconds=0.0)

_QUIET = TopicInfo(
    topic="email",
    ready=0,
    waiting=0,
    running=0,
    dead_lettered=0,
    canceled=0,
    oldest_ready_at=None,
    last_minute=NO_RATES,
    last_hour=NO_RATES,
    paused=False,
    workers=1,
    wait=NO_LATENCY,
    run=NO_LATENCY,
)


def topic(name: str = "email", *, age: timedelta | None = None, **changes: Any) -> TopicInfo:
    """A topic whose oldest ready job is so old; quiet unless said otherwise."""
    oldest = None if age is None else NOW - age
    return replace(_QUIET, topic=name, oldest_ready_at=oldest, **changes)


def gone_worker(name: str, held: int, lease_left: timedelta) -> WorkerInfo:
    job = HeldJob("id", "email", 1, NOW, NOW + lease_left)
    return WorkerInfo(name, (), 0, None, None, held, (job,) * min(held, 1))


def connected_worker(name: str, *topics: str, capacity: int = 10, held: int = 0) -> WorkerInfo:
    return WorkerInfo(name, topics, capacity, NOW, "pulsed-1", held, ())
