"""What a server counts and measures."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter as TopicCounts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

# ---------------------------------------------------------------- latencies
# Durations, counted in buckets that grow by about a fifth, and percentiles of the buckets.
#
# A bucket's number is stored with its count (pulse.topic_minutes), so the bounds never change: others would
# give the stored minutes another meaning.

# Seconds. Each mark is a bound, so that the buckets between two marks can be added up.
_MARKS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
    3600.0,
    86_400.0,
)
_GROWTH = 1.2
_SHARES = (0.5, 0.95, 0.99)


def _bounds() -> Iterator[float]:
    for low, high in pairwise(_MARKS):
        steps = round(math.log(high / low, _GROWTH))
        for step in range(steps):
            yield low * math.pow(high / low, step / steps)
    yield _MARKS[-1]


# 103 bounds, from a millisecond to a day. Bucket n holds values above BOUNDS[n - 1] and up to
# BOUNDS[n]; the first bucket has no lower bound, and the last, len(BOUNDS), no upper bound.
BOUNDS = tuple(_bounds())

Buckets: TypeAlias = Mapping[int, int]
"""How many values each bucket holds. Empty buckets are left out."""
NOTHING: Buckets = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Latency:
    """The count, and the percentiles in seconds."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0


def latency(buckets: Buckets) -> Latency:
    """Compute the percentiles of the buckets. All zeros if they are empty."""
    count = sum(buckets.values())
    if not count:
        return Latency()
    ranks = [count * share for share in _SHARES]
    estimates: list[float] = []
    below = 0
    for bucket in sorted(buckets):
        inside = buckets[bucket]
        # A rank's value is in the first bucket whose cumulative count reaches the rank.
        while len(estimates) < len(ranks) and below + inside >= ranks[len(estimates)]:
            estimates.append(_inside(bucket, (ranks[len(estimates)] - below) / inside))
        below += inside
    return Latency(count, *estimates)


def added_up(many: Iterable[Buckets]) -> dict[int, int]:
    """The sum of all buckets."""
    total: dict[int, int] = {}
    for buckets in many:
        for bucket, count in buckets.items():
            total[bucket] = total.get(bucket, 0) + count
    return total


def _inside(bucket: int, share: float) -> float:
    """Interpolate in the bucket, on a logarithmic scale."""
    if bucket >= len(BOUNDS):
        return BOUNDS[-1]
    high = BOUNDS[bucket]
    if bucket == 0:
        return high * share  # down to nothing, which no logarithm reaches
    low = BOUNDS[bucket - 1]
    return min(high, low * math.pow(high / low, share))


# ---------------------------------------------------------------- instruments
# Counters, histograms and gauges that cost next to nothing to feed.
#
# Only the thread of the event loop feeds them. Prometheus' client library locks for each value, which
# would be a tenth of a job's cost here. These only keep numbers; exposition.py formats them.

Labels = tuple[str, ...]

# Seconds, from a statement on an idle machine to a job that waited for an hour.
SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
    3600.0,
)
SHORT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0)


@dataclass(slots=True)
class Counter:
    """Goes up. One number per combination of labels."""

    name: str
    help: str
    labels: Labels = ()
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, *labels: str, by: float = 1) -> None:
        self.add_to(labels, by)

    def add_to(self, labels: Labels, by: float) -> None:
        self.values[labels] = self.values.get(labels, 0) + by


@dataclass(slots=True)
class Distribution:
    """How many values fell under each bound, and their sum."""

    counts: list[int]
    total: float = 0.0


@dataclass(slots=True)
class Histogram:
    """The distribution of values, one per combination of labels.

    If it counts in finer buckets than a scrape should carry, `scraped` has the scraped bounds.
    """

    name: str
    help: str
    bounds: Sequence[float]
    labels: Labels = ()
    values: dict[Labels, Distribution] = field(default_factory=dict)
    scraped: Sequence[float] | None = None

    def observe(self, *labels: str, value: float) -> None:
        self.observe_in(labels, (value,))

    def observe_in(self, labels: Labels, values: Sequence[float]) -> None:
        found = self.values.get(labels)
        if found is None:
            found = self.values[labels] = Distribution([0] * (len(self.bounds) + 1))
        counts, bounds = found.counts, self.bounds
        if len(values) < 2 * len(bounds):
            for value in values:
                counts[bisect_left(bounds, value)] += 1
        else:
            _count_many(counts, bounds, sorted(values))
        found.total += sum(values)


def _count_many(counts: list[int], bounds: Sequence[float], values: Sequence[float]) -> None:
    """Count many sorted values: one search for each bound instead of one for each value."""
    begin = 0
    for place, bound in enumerate(bounds):
        end = bisect_right(values, bound, begin)
        counts[place] += end - begin
        begin = end
    counts[-1] += len(values) - begin


@dataclass(slots=True)
class Gauge:
    """Goes up and down. Read at a scrape: `read` returns a number per combination of labels.

    It is read on the event loop, so it must be quick and must not wait.
    """

    name: str
    help: str
    labels: Labels = ()
    read: Callable[[], dict[Labels, float]] = dict


Instrument = Counter | Histogram | Gauge


# ---------------------------------------------------------------- metrics
# Every metric of a server process, by name. docs/metrics.md explains the use of each.

# An application that makes topics from user ids must not fill the memory of its scraper.
MOST_TOPICS = 1000
# The part of MOST_TOPICS for topics whose jobs no worker has had. Producers can make up any number
# of topics, and must not take the names from topics that are worked on.
MOST_UNWORKED_TOPICS = MOST_TOPICS // 2
OTHER_TOPICS = "(other)"

_TOPIC = ("topic",)


class Metrics:
    def __init__(self) -> None:
        self._topics: set[str] = set()
        # --- what became of jobs
        self.submitted = Counter(
            "pulse_jobs_submitted", "Jobs taken in, fires of schedules included.", _TOPIC
        )
        self.claimed = Counter("pulse_jobs_claimed", "Jobs leased to a worker.", _TOPIC)
        self.completed = Counter("pulse_jobs_completed", "Attempts that were reported as a success.", _TOPIC)
        self.failed = Counter(
            "pulse_jobs_failed",
            "Attempts that did not succeed, by kind: error, discarded, timed_out, lease_expired.",
            ("topic", "kind"),
        )
        self.snoozed = Counter(
            "pulse_jobs_snoozed", "Attempts that ended with a snooze, which costs none.", _TOPIC
        )
        self.suspended = Counter(
            "pulse_jobs_suspended",
            "Attempts that ended with a sleep or the wait for a signal, which costs none.",
            _TOPIC,
        )
        self.retried = Counter("pulse_jobs_retried", "Failed attempts that another one follows.", _TOPIC)
        self.dead_lettered = Counter(
            "pulse_jobs_dead_lettered", "Jobs given up: out of attempts, or discarded.", _TOPIC
        )
        self.reaped = Counter("pulse_jobs_reaped", "Leases that expired and were reaped.", _TOPIC)
        self.released = Counter(
            "pulse_jobs_released", "Jobs given back unstarted, with their attempt.", _TOPIC
        )
        self.canceled = Counter("pulse_jobs_canceled", "Jobs called off.", _TOPIC)
        self.redriven = Counter(
            "pulse_jobs_redriven", "Finished jobs sent round again by an operator.", _TOPIC
        )
        self.deleted = Counter(
            "pulse_jobs_deleted", "Finished jobs deleted, by whom: retention, operator.", ("status", "actor")
        )
        # These two are also recorded by the minute, with finer bounds. One count serves both.
        # docs/figures.md#statistics
        self.queue_wait = Histogram(
            "pulse_queue_wait_seconds",
            "From when a job was due to its claim.",
            BOUNDS,
            _TOPIC,
            scraped=SECONDS,
        )
        self.run_time = Histogram(
            "pulse_run_seconds",
            "From a job's claim to the report on it, by how it ended.",
            BOUNDS,
            ("topic", "outcome"),
            scraped=SECONDS,
        )
        # --- the doors
        self.rpc_time = Histogram(
            "pulse_rpc_seconds",
            "From the arrival of a call, or of a message on a line, to its answer; streams are left out.",
            SHORT_SECONDS,
            ("method",),
        )
        self.rpcs = Counter(
            "pulse_rpcs",
            "Calls and messages on lines that were answered, by status code.",
            ("method", "code"),
        )
        self.changes = Counter(
            "pulse_changes",
            "Changes that callers requested, by outcome; an action on many jobs is one.",
            ("method", "outcome"),
        )
        self.logins = Counter(
            "pulse_logins", "Credentials that were checked: ok, wrong, throttled or busy.", ("result",)
        )
        # --- inside
        self.batch_size = Histogram(
            "pulse_group_commit_batch_size", "Items that one statement carried.", SIZES, ("what",)
        )
        self.statement_time = Histogram(
            "pulse_statement_seconds",
            "Database statements, waiting for a connection included.",
            SHORT_SECONDS,
            ("statement",),
        )
        self.statement_failures = Counter(
            "pulse_statement_failures", "Database statements without an answer.", ("statement",)
        )
        self.statements_without_space = Counter(
            "pulse_statements_without_space", "Database statements refused because a disk is full."
        )
        self.schedule_lateness = Histogram(
            "pulse_schedule_lateness_seconds", "From an occurrence to the job that it made.", SECONDS
        )
        self.loop_failures = Counter(
            "pulse_loop_failures", "Rounds of background loops that failed.", ("loop",)
        )
        self.pools_repaired = Counter(
            "pulse_pools_repaired", "Pools whose counts did not agree with what runs."
        )
        self.lanes_repaired = Counter(
            "pulse_lanes_repaired", "Lanes whose counts did not agree with what runs."
        )
        # --- the current state: its owner sets `read`
        self.workers = Gauge("pulse_workers_connected", "Streams of workers that are open on this server.")
        self.workers_capacity = Gauge("pulse_workers_capacity", "Jobs that those workers could hold.")
        self.workers_held = Gauge("pulse_workers_held_jobs", "Jobs that they hold, by this server's books.")
        self.connections = Gauge(
            "pulse_database_connections",
            "Connections of a pool, by state: open, busy (a part of open), allowed.",
            ("pool", "state"),
        )
        self.dispatch_paused = Gauge(
            "pulse_dispatch_paused",
            'Whether dispatch of the topic is paused; topic="" is everything.',
            _TOPIC,
        )
        self.ready_to_serve = Gauge("pulse_ready", "Whether /readyz says yes.")
        self.build = Gauge("pulse_build_info", "Always 1; the label is the running version.", ("version",))
        self.process_up = Gauge(
            "pulse_process_up", "Whether a process answers its supervisor (--processes).", ("process",)
        )
        # --- as a sample of the database found it (views/vitals.py)
        self.ready_jobs = Gauge("pulse_ready_jobs", "Jobs that could be claimed now.", _TOPIC)
        self.oldest_ready = Gauge(
            "pulse_oldest_ready_seconds",
            "For how long the ready job that is longest due has been due.",
            _TOPIC,
        )
        self.running_jobs = Gauge("pulse_running_jobs", "Jobs under a lease.")
        self.dead_letters = Gauge("pulse_dead_letters", "Jobs that were given up and are still kept.", _TOPIC)
        self.long_runs = Gauge(
            "pulse_long_runs",
            "Jobs that have run longer than a minute, and three times as long as is usual for the topic.",
            _TOPIC,
        )
        self.schedule_lag = Gauge(
            "pulse_schedule_lag_seconds", "For how long the most overdue schedule has been due."
        )
        self.dead_rows = Gauge(
            "pulse_database_jobs_dead_rows", "Dead rows in the tables of jobs, as estimated."
        )
        self.jobs_bytes = Gauge("pulse_database_jobs_bytes", "Size of the tables of jobs with their indexes.")
        self.vitals_age = Gauge(
            "pulse_vitals_age_seconds", "For how long the database has not been sampled in whole."
        )
        # --- as the last look at the limits found it (topics/service.py)
        self.limited_running = Gauge(
            "pulse_limited_running", "Running jobs that count against the limit of the topic.", _TOPIC
        )
        self.limit_in_force = Gauge("pulse_limit_in_force", "How many of them there may be.", _TOPIC)
        self.rate_spent = Gauge(
            "pulse_rate_spent",
            "Whether jobs of the topic wait for its rate, or for the end of a hold.",
            _TOPIC,
        )
        self.topic_limited = Gauge(
            "pulse_topic_limited",
            "Whether no job of the topic may start now by its limits: limit, pool, rate, hold, lanes, order.",
            _TOPIC,
        )
        # --- as the last look at the database's sessions found it (views/vitals.py)
        self.oldest_transaction = Gauge(
            "pulse_database_oldest_transaction_seconds",
            "Age of the oldest transaction that keeps dead rows from being removed.",
        )
        self.database_full = Gauge("pulse_database_full", "Whether a disk of the database has no space left.")
        self.completed_days_ahead = Gauge(
            "pulse_completed_days_ahead",
            "Days after today that have a partition for completed jobs.",
        )
        self.horizon = Gauge(
            "pulse_database_horizon_transactions",
            "Transaction ids given out since the oldest snapshot that keeps dead rows from being removed.",
        )

    def topic(self, name: str, *, is_worked: bool = False) -> str:
        """The label for a topic: its name, unless there are too many topics. A known name stays."""
        if name in self._topics:
            return name
        if len(self._topics) >= (MOST_TOPICS if is_worked else MOST_UNWORKED_TOPICS):
            return OTHER_TOPICS
        self._topics.add(name)
        return name

    def count_topics(self, counter: Counter, topics: Iterable[str]) -> None:
        """Count one for each entry."""
        for name, count in TopicCounts(topics).items():
            counter.add(self.topic(name), by=count)

    def count_and_observe(
        self, counter: Counter, histogram: Histogram, name: str, values: Sequence[float], *labels: str
    ) -> None:
        """Count the values, and observe them, under a topic that has a worker."""
        topic = name if name in self._topics else self.topic(name, is_worked=True)
        counter.add_to((topic,), len(values))
        histogram.observe_in((topic, *labels), values)

    def __iter__(self) -> Iterator[Instrument]:
        return (value for value in vars(self).values() if isinstance(value, Instrument))
