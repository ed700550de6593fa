"""The overview for operators: topics, servers and their connected workers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from pulse_server.domain.latencies import NOTHING, Buckets, Latency
from pulse_server.domain.progress import Progress

# Names the total of all topics in lists of topics; no topic has an empty name.
ALL_TOPICS = ""


@dataclass(frozen=True, slots=True)
class TopicDepth:
    """How many jobs of a topic wait, run, or need an operator."""

    topic: str
    ready: int = 0
    waiting: int = 0
    running: int = 0
    dead_lettered: int = 0
    canceled: int = 0
    oldest_ready_at: datetime | None = None
    """When the longest-waiting ready job became due."""


class Rates(NamedTuple):
    """Counts of a topic's jobs in some span of time."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    dead_lettered: int = 0


class TopicRates(NamedTuple):
    last_minute: Rates = Rates()
    last_hour: Rates = Rates()


class TopicBuckets(NamedTuple):
    """How long a topic's jobs had been due when they were claimed, and claimed when they were reported."""

    wait: Buckets = NOTHING
    run: Buckets = NOTHING


class TopicLatencies(NamedTuple):
    wait: Latency = Latency()
    run: Latency = Latency()


class Counts(NamedTuple):
    """Everything that is counted by the minute."""

    submitted: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    dead_lettered: int = 0
    canceled: int = 0


class TopicActivity(NamedTuple):
    """The activity of one server for a topic since its last report."""

    topic: str
    counts: Counts = Counts()
    wait: Buckets = NOTHING
    run: Buckets = NOTHING


class Minute(NamedTuple):
    """The activity of all servers in one minute."""

    at: datetime
    counts: Counts = Counts()
    wait: Buckets = NOTHING
    run: Buckets = NOTHING


class ConnectedWorker(NamedTuple):
    """A worker as its server sees it."""

    worker_id: str
    topics: tuple[str, ...]
    capacity: int
    connected_at: datetime
    topics_left_out: int = 0
    """How many topics it takes that are not listed."""


class Sparing(NamedTuple):
    """How the workers of a server that stopped reporting are spared from reaping.

    `after` and `until` count from the last report. After `after`, the server counts as cut off from
    the database. Its workers are spared until `until`, so that they can move to another server. If
    the server reports again, they are spared for `once_back` more. ADR-0042
    """

    after: timedelta
    until: timedelta
    once_back: timedelta


class Server(NamedTuple):
    """One pulsed process, and its connected workers."""

    id: str
    name: str
    workers: tuple[ConnectedWorker, ...]
    started_at: datetime | None = None
    """None: not recorded yet."""


class HeldJob(NamedTuple):
    job_id: str
    topic: str
    worker_id: str
    attempt: int
    since: datetime
    lease_until: datetime
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """The number of jobs that one worker holds, and the longest-held jobs."""

    count: int = 0
    jobs: tuple[HeldJob, ...] = ()
