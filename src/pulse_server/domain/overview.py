"""What operators see at a glance: topics, servers and the workers that are connected to them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class TopicDepth:
    """How many jobs of a topic wait, run, or need somebody."""

    topic: str
    ready: int = 0
    waiting: int = 0
    running: int = 0
    dead_lettered: int = 0
    canceled: int = 0
    oldest_ready_at: datetime | None = None
    """Since when the longest waiting of the ready ones is due."""


class Rates(NamedTuple):
    """What happened to a topic's jobs in some span of time."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    dead_lettered: int = 0


class TopicRates(NamedTuple):
    last_minute: Rates = Rates()
    last_hour: Rates = Rates()


class TopicActivity(NamedTuple):
    """What one server did for a topic since it last told."""

    topic: str
    submitted: int
    completed: int
    failed: int
    retried: int
    dead_lettered: int
    canceled: int


class ConnectedWorker(NamedTuple):
    """A worker as its server sees it."""

    worker_id: str
    topics: tuple[str, ...]
    capacity: int
    connected_at: datetime


class Server(NamedTuple):
    """One pulsed process, and who is connected to it."""

    id: str
    name: str
    workers: tuple[ConnectedWorker, ...]


class HeldJob(NamedTuple):
    job_id: str
    topic: str
    worker_id: str
    attempt: int
    since: datetime
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class Holding:
    """What one worker holds: how many jobs, and the ones that it has held the longest."""

    count: int = 0
    jobs: tuple[HeldJob, ...] = ()
