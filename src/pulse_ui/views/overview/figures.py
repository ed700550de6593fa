"""The figures at the top of the overview."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pulse import Minute, TopicInfo, WorkerInfo


@dataclass(frozen=True, slots=True)
class Depth:
    """How many jobs there are now."""

    ready: int
    running: int
    waiting: int
    waiting_for_jobs: int
    """In workflows, for other jobs; not among `waiting`."""
    dead_lettered: int
    died_last_hour: int
    oldest_ready_at: datetime | None

    @property
    def has_fresh_letters(self) -> bool:
        """True if jobs were dead-lettered lately and have not been retried."""
        return self.died_last_hour > 0 and self.dead_lettered > 0


@dataclass(frozen=True, slots=True)
class Pace:
    """The throughput of a span of time."""

    last_minute: int
    """Completed in the last full minute."""
    per_minute: float
    """Completed per minute on average."""
    completed: int
    failed: int

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed; None if there were none."""
        attempts = self.completed + self.failed
        return self.failed / attempts if attempts else None


@dataclass(frozen=True, slots=True)
class WorkerTotals:
    """The workers, counted."""

    connected: int
    gone: int
    """Workers that hold jobs without a connection."""
    capacity: int
    held: int


def depth_of(topics: Sequence[TopicInfo]) -> Depth:
    return Depth(
        ready=sum(topic.ready for topic in topics),
        running=sum(topic.running for topic in topics),
        waiting=sum(topic.waiting for topic in topics),
        waiting_for_jobs=sum(topic.waiting_for_jobs for topic in topics),
        dead_lettered=sum(topic.dead_lettered for topic in topics),
        died_last_hour=sum(topic.last_hour.dead_lettered for topic in topics),
        oldest_ready_at=min((t.oldest_ready_at for t in topics if t.oldest_ready_at), default=None),
    )


def pace_of(minutes: Sequence[Minute]) -> Pace:
    """Return the pace of the minutes. The average excludes the last minute: it is not over."""
    over = minutes[:-1]
    return Pace(
        last_minute=over[-1].completed if over else 0,
        per_minute=sum(minute.completed for minute in over) / len(over) if over else 0.0,
        completed=sum(minute.completed for minute in minutes),
        failed=sum(minute.failed for minute in minutes),
    )


def worker_totals(workers: Sequence[WorkerInfo], topic: str | None = None) -> WorkerTotals:
    """Return the totals of one topic or of all. A worker with two connections is counted once."""
    concerned = [worker for worker in workers if topic is None or topic in worker.topics]
    connected = {worker.worker_id: worker for worker in concerned if worker.connected_at is not None}
    return WorkerTotals(
        connected=len(connected),
        gone=sum(1 for worker in concerned if worker.connected_at is None and worker.held_count),
        capacity=sum(worker.capacity for worker in connected.values()),
        held=sum(worker.held_count for worker in connected.values()),
    )
