"""The vitals: gauges of a queue and its database."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadyTopic:
    """The ready jobs of one topic; without a name, of all topics that are left."""

    topic: str | None
    ready: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class JobCounts:
    running: int
    dead_letters: int


@dataclass(frozen=True, slots=True)
class DatabaseVitals:
    """The state of the database: the lag of schedules, dead rows, the size of the jobs table."""

    schedule_lag_seconds: float
    dead_rows: int
    jobs_bytes: int


@dataclass(frozen=True, slots=True)
class Census:
    """The number of workers on one server, their capacity, and the jobs they hold."""

    workers: int
    capacity: int
    held: int
