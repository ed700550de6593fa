"""The overview of a queue: topics with counts, rates and latencies, workers, and statistics by the minute."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pulse.messages import Items, Reader
from pulse.models.progress import Progress


@dataclass(frozen=True, slots=True)
class Rates:
    """The counts of a topic in a span of time."""

    submitted: int
    completed: int
    failed: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic. Completed jobs are only counted in the rates."""

    topic: str
    ready: int
    """Can be claimed now."""
    waiting: int
    """Delayed, or between two attempts."""
    running: int
    dead_lettered: int
    canceled: int
    oldest_ready_at: datetime | None
    """When the oldest ready job became due."""
    last_minute: Rates
    last_hour: Rates
    paused: bool
    workers: int
    """Connected workers that serve this topic."""
    wait: Latency
    """From due to claimed, over the last hour."""
    run: Latency
    """From claimed to reported, over the last hour."""
    waiting_for_jobs: int = 0
    """In workflows, waiting for other jobs. `waiting` does not count them."""


@dataclass(frozen=True, slots=True)
class TopicPage(Items[TopicInfo]):
    """One page of topics."""

    topics: tuple[TopicInfo, ...]
    next_cursor: str | None
    """Pass it to the next `list_topics`. None on the last page."""
    total: int
    """The number of matching topics on all pages."""
    sum: TopicInfo
    """The totals over all topics, without a name, workers and latencies."""


topic_page = Reader(TopicPage, next_cursor="next_page_token")
"""Returns the page in a `ListTopicsResponse`."""


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
    ready: int | None = None
    """Ready jobs, sampled once in the minute. None: not sampled."""
    running: int | None = None
    oldest_seconds: float | None = None
    """How long the oldest ready job had been due."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Every minute of a span, oldest first. The last one is still running."""

    minutes: tuple[Minute, ...]
    wait: Latency
    """From due to claimed, over the whole span."""
    run: Latency
    """From claimed to reported, over the whole span."""


Reader(Latency, p50="p50_seconds", p95="p95_seconds", p99="p99_seconds")
statistics = Reader(Statistics)
"""Returns the statistics in a `GetStatisticsResponse`."""


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A job that a worker holds."""

    id: str
    topic: str
    attempt: int
    since: datetime | None
    lease_until: datetime | None
    progress: Progress | None = None
    """As last stored: of this attempt, or of an earlier one."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What an operator has ordered of a worker. Such a worker takes no jobs."""

    name: str
    """`quiet`, or `stopping`: it ends once its running jobs have."""
    reason: str
    set_at: datetime | None
    set_by: str = ""
    """The user; empty if the server requires none."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker: its connection, if it has one, and the jobs it holds."""

    worker_id: str
    topics: tuple[str, ...]
    capacity: int
    connected_at: datetime | None
    """None if it holds jobs and is not connected."""
    server: str | None
    held_count: int
    held: tuple[HeldJob, ...]
    """At most twenty, the longest held first."""
    topic_count: int = 0
    """The number of its topics. `topics` lists at most the first hundred."""
    host: str = ""
    version: str = ""
    """Of the SDK that it runs."""
    memory_bytes: int = 0
    """Its resident memory, as of its last heartbeat. 0: unknown."""
    last_exit: str = ""
    """How the process before it ended, if a supervisor has replaced it."""
    state: WorkerState | None = None
    """What an operator has ordered. None: it takes jobs."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One pulsed process."""

    id: str
    name: str
    started_at: datetime | None
    workers: int
    """The number of workers connected to it."""
    address: str | None = None
    """The address that it listens on, as it was set."""
    version: str | None = None
    """The version of pulse-jobs."""
    silent_since: datetime | None = None
    """The time of its last report, if the next one is overdue."""


Reader(HeldJob, id="job_id")
worker_info = Reader(
    WorkerInfo,
    topic_count=lambda view: view.topic_count or len(view.topics),
    host=lambda view: view.facts.host,
    version=lambda view: view.facts.version,
    memory_bytes=lambda view: view.facts.memory_bytes,
    last_exit=lambda view: view.facts.last_exit,
)
"""Returns the worker in a `WorkerView`."""
server_info = Reader(ServerInfo, id="server_id")
"""Returns the server in a `ServerView`."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job does not run, or why a topic starts no jobs."""

    job_id: str | None
    """None: the topic as a whole."""
    cause: str
    """A code such as `topic_paused`. Empty if nothing stops it."""
    sentence: str
    remedy: str
    """What must happen or be done, with the command. May be empty."""
    expected_at: datetime | None
    """About when it goes on, if that is known."""
    brief: str
    """The sentence in a few words."""


explanation = Reader(Explanation)
"""Returns the explanation in an `Explanation` of the contract."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What needs attention about a topic, about a worker, or about the whole queue."""

    kind: str
    """The most harmful part: full, paused, scheduler, dead, failing, starving, old, limited, long, flood,
    worker, silent or memory."""
    urgent: bool
    """A problem. Otherwise a warning."""
    topic: str | None
    worker_id: str | None
    sentence: str
    """Of a topic or a worker: the rest of the sentence, after its name."""
    harm: float
    """Jobs per minute over the last five minutes: late ones count 1, failed 10, dead-lettered 100."""


@dataclass(frozen=True, slots=True)
class Findings(Items[Finding]):
    """The findings. Trouble of the whole queue comes first, then the most harm."""

    findings: tuple[Finding, ...]
    findings_left_out: int
    """The number of findings beyond the limit."""
    found_at: datetime | None


findings = Reader(Findings)
"""Returns the findings in a `ListFindingsResponse`."""
