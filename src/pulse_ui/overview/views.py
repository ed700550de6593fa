"""What the overview shows: findings, topics, figures, dead letters; and the URLs of other choices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import IntEnum
from hashlib import blake2b
from urllib.parse import quote, urlencode

import pulse
from pulse import Minute, TopicInfo, WorkerInfo
from pulse_text import printable
from pulse_ui import tuning, words

MOST_OF_A_KIND = 4
"""List only the most harmful: a hundred topics without a worker have one cause, and hide the rest."""
_MANY = {
    "paused": "more topics are paused.",
    "starving": "more topics have ready jobs and no worker.",
    "old": "more topics are falling behind.",
    "limited": "more topics wait for their limits.",
    "dead": "more topics dead-lettered jobs in the last hour.",
    "failing": "more topics have many failures.",
    "worker": "more workers hold jobs but are not connected.",
    "silent": "more workers send no heartbeats.",
    "memory": "more hosts have workers that were replaced for memory.",
    "long": "more topics have runs longer than usual.",
    "flood": "more topics have a lane with most of the waiting jobs.",
}

Place = tuple[str, str, str]
"""Where to act: the path, the text of the link, and the RPC that the page needs."""
TOPICS: Place = ("#topics", "Show topics", "ListTopics")
WORKERS: Place = ("/workers", "Show workers", "ListWorkers")
# By kind. {topic} is the topic as it stands in a URL.
_PLACES: Mapping[str, Place] = {
    "paused": ("/dispatch", "Details", "GetDispatchStatus"),
    "scheduler": ("/schedules", "Show schedules", "ListSchedules"),
    "dead": ("/dead-letters?topic={topic}", "Show errors", "ListDeadLetterGroups"),
    "failing": ("/jobs?topic={topic}&status=RETRYING", "Show retrying jobs", "ListJobs"),
    "starving": WORKERS,
    "old": ("/jobs?topic={topic}&status=PENDING", "Show waiting jobs", "ListJobs"),
    "limited": ("/topics/{topic}#settings", "Show limits", "ListLimits"),
    "flood": ("/topics/{topic}#lanes", "Show lanes", "ListLanes"),
    "long": ("/jobs?topic={topic}&status=RUNNING", "Show running jobs", "ListJobs"),
    "worker": WORKERS,
    "silent": WORKERS,
    "memory": WORKERS,
}
# A later server may have kinds that this dashboard does not know.
_JOBS: Place = ("/jobs?topic={topic}", "Show jobs", "ListJobs")
_NOWHERE: Place = ("", "", "")


class Severity(IntEnum):
    WARNING = 1
    PROBLEM = 2

    @property
    def mark(self) -> str:
        return {Severity.WARNING: "!", Severity.PROBLEM: "✕"}[self]


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    about: str
    """Identifies the finding within its kind, across refreshes."""
    severity: Severity
    subject: str
    """The topic or the worker; empty for the whole queue."""
    sentence: str
    """The rest of the sentence."""
    path: str
    path_text: str
    needs: str
    """The RPC that the linked page needs."""
    is_topic: bool = False
    """True if the subject is a topic."""

    @property
    def key(self) -> str:
        return f"{self.kind}-{self.about}"


def findings_view(found: Iterable[pulse.Finding]) -> list[Finding]:
    """Return the findings in the server's order, by harm."""
    return [_view(finding) for finding in found]


def _view(finding: pulse.Finding) -> Finding:
    path, text, needs = _PLACES.get(finding.kind, _JOBS if finding.topic else _NOWHERE)
    subject = finding.topic or finding.worker_id or ""
    return Finding(
        finding.kind,
        quote(subject),
        Severity.PROBLEM if finding.urgent else Severity.WARNING,
        printable.one_line(subject),
        finding.sentence,
        path.replace("{topic}", quote(finding.topic or "", safe="")),
        text,
        needs,
        is_topic=bool(finding.topic),
    )


def summarized(found: Sequence[Finding]) -> list[Finding]:
    """Return the findings in their order; of a kind with too many, the first and a count of the rest."""
    shown: list[Finding] = []
    alike = Counter((finding.kind, finding.severity) for finding in found)
    seen: Counter[tuple[str, Severity]] = Counter()
    for finding in found:
        kind = (finding.kind, finding.severity)
        seen[kind] += 1
        if alike[kind] <= MOST_OF_A_KIND or seen[kind] < MOST_OF_A_KIND:
            shown.append(finding)
        elif seen[kind] == MOST_OF_A_KIND:
            more = words.count(alike[kind] - MOST_OF_A_KIND + 1)
            sentence = f"{more} {_MANY.get(finding.kind, 'more findings of this kind.')}"
            place = TOPICS if finding.is_topic else WORKERS
            shown.append(
                Finding(finding.kind, f"+{finding.severity}", finding.severity, "", sentence, *place)
            )
    return shown


# ---------------------------------------------------------------- topics

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TopicRow:
    info: TopicInfo
    severity: Severity | None
    """The severity of its worst finding."""
    failure_rate: float | None
    completed_share: float
    """The share of the last hour's bar, in percent: the busiest topic fills it."""
    failed_share: float


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    title: str
    is_number: bool = True
    is_ascending: bool = False
    """Sorted by it, the smallest comes first."""


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[Column, ...]
    sorted_by: str
    rows: tuple[TopicRow, ...]
    left_out: int


COLUMNS = (
    Column("topic", "Topic", is_number=False, is_ascending=True),
    Column("ready", "Ready"),
    Column("oldest", "Oldest"),
    Column("running", "Running"),
    Column("waiting", "Waiting"),
    Column("dead", "Dead"),
    Column("completed", "Done 1 h"),
    Column("failed", "Failed 1 h"),
    Column("wait", "Wait p95"),
    Column("run", "Run p95"),
    Column("workers", "Workers", is_ascending=True),
)
TROUBLE = "trouble"
"""The default order."""

# Numbers descending, ages from the oldest, workers ascending.
_ORDERS: Mapping[str, Callable[[TopicInfo], object]] = {
    "topic": lambda topic: topic.topic,
    "ready": lambda topic: -topic.ready,
    "oldest": lambda topic: topic.oldest_ready_at or _NEVER,
    "running": lambda topic: -topic.running,
    "waiting": lambda topic: -topic.waiting,
    "dead": lambda topic: -topic.dead_lettered,
    "completed": lambda topic: -topic.last_hour.completed,
    "failed": lambda topic: -topic.last_hour.failed,
    "wait": lambda topic: -topic.wait.p95,
    "run": lambda topic: -topic.run.p95,
    "workers": lambda topic: topic.workers,
}


def topic_table(
    topics: Sequence[TopicInfo], found: Sequence[Finding], sort: str, most: int | None = None
) -> Table:
    """Return the table sorted by that column, or by trouble if there is no such column.

    Trouble is the order of the findings, then the busiest topics.
    """
    places: dict[str, int] = {}
    severities: dict[str, Severity] = {}
    for place, finding in enumerate(found):
        if finding.is_topic:
            places.setdefault(finding.subject, place)
            severities.setdefault(finding.subject, finding.severity)

    def by_trouble(topic: TopicInfo) -> object:
        busy = topic.ready + topic.running
        return (places.get(topic.topic, len(found)), -busy, -topic.last_hour.completed, topic.topic)

    def by_column(topic: TopicInfo) -> object:
        return (_ORDERS[sort](topic), topic.topic)

    is_known = sort in _ORDERS
    ordered = sorted(topics, key=by_column if is_known else by_trouble)  # type: ignore[arg-type]
    shown = ordered if most is None else ordered[:most]
    busiest = max((_attempts(topic) for topic in topics), default=0)
    return Table(
        COLUMNS,
        sort if is_known else TROUBLE,
        tuple(_row(topic, severities.get(topic.topic), busiest) for topic in shown),
        len(ordered) - len(shown),
    )


def _row(topic: TopicInfo, severity: Severity | None, busiest: int) -> TopicRow:
    attempts = _attempts(topic)
    return TopicRow(
        topic,
        severity,
        topic.last_hour.failed / attempts if attempts else None,
        round(100 * topic.last_hour.completed / busiest, 2) if busiest else 0.0,
        round(100 * topic.last_hour.failed / busiest, 2) if busiest else 0.0,
    )


def _attempts(topic: TopicInfo) -> int:
    return topic.last_hour.completed + topic.last_hour.failed


# ---------------------------------------------------------------- choices

SPANS = {60: "last hour", 360: "last 6 h", 1_440: "last 24 h"}
"""The spans that can be chosen, in minutes, with their names."""
_DEFAULT_SPAN = 60
_LONGEST_SEARCH = 255


def topic_path(topic: str, section: str = "") -> str:
    """Return the URL of the page of a topic, or of a section of it. Its name may contain slashes."""
    return f"/topics/{quote(topic)}" + (f"#{section}" if section else "")


@dataclass(frozen=True, slots=True)
class OverviewQuery:
    minutes: int = _DEFAULT_SPAN
    path: str = "/"
    """The page: the overview, the list of topics, or one topic."""
    sort: str = TROUBLE
    shows_all: bool = False
    """All topics, page by page if there are many."""
    search: str = ""
    """Only topics whose name contains this."""
    cursor: str = ""
    """The cursor of the page of topics."""

    @property
    def span(self) -> str:
        return SPANS[self.minutes]

    def span_path(self, minutes: int) -> str:
        return replace(self, minutes=minutes)._path()

    def sort_path(self, column: str) -> str:
        return replace(self, sort=column, cursor="")._path("#topics")

    @property
    def all_topics_path(self) -> str:
        return replace(self, shows_all=True, cursor="")._path("#topics")

    @property
    def unsearched_path(self) -> str:
        return replace(self, search="", cursor="")._path("#topics")

    def page_path(self, cursor: str) -> str:
        return replace(self, shows_all=True, cursor=cursor)._path("#topics")

    @property
    def kept_fields(self) -> list[tuple[str, str]]:
        """The fields that a new search keeps."""
        return [
            (name, value) for name, value in self._query().items() if name not in ("search", "cursor", "all")
        ]

    def _path(self, fragment: str = "") -> str:
        query = self._query()
        return self.path + ("?" + urlencode(query) if query else "") + fragment

    def _query(self) -> dict[str, str]:
        query: dict[str, str] = {}
        if self.minutes != _DEFAULT_SPAN:
            query["minutes"] = str(self.minutes)
        if self.sort != TROUBLE:
            query["sort"] = self.sort
        if self.shows_all:
            query["all"] = "1"
        if self.search:
            query["search"] = self.search
        if self.cursor:
            query["cursor"] = self.cursor
        return query


def read_overview_query(text_of: Callable[[str], str], path: str = "/") -> OverviewQuery:
    """Read the query of a URL by the names of its fields. Invalid values are ignored."""
    minutes = text_of("minutes")
    chosen = int(minutes) if minutes.isascii() and minutes.isdigit() and len(minutes) < 6 else _DEFAULT_SPAN
    return OverviewQuery(
        chosen if chosen in SPANS else _DEFAULT_SPAN,
        path,
        text_of("sort") or TROUBLE,
        bool(text_of("all")),
        text_of("search")[:_LONGEST_SEARCH],
        text_of("cursor"),
    )


# ---------------------------------------------------------------- figures


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


# ---------------------------------------------------------------- dead letters


@dataclass(frozen=True, slots=True)
class GroupView:
    anchor: str
    """The id of its element, stable while the group exists."""
    topic: str
    error_group: str
    is_mixed: bool
    """Its jobs were dead-lettered before groups existed, with different errors."""
    count: int
    summary: str
    error: str
    has_more: bool
    first_at: datetime | None
    last_at: datetime | None
    sample_id: str
    worker_id: str
    list_path: str

    @property
    def topic_name(self) -> str:
        return printable.one_line(self.topic)


@dataclass(frozen=True, slots=True)
class DeadLettersView:
    groups: tuple[GroupView, ...]
    groups_left_out: int
    count: int
    """The known number of dead letters."""
    is_at_least: bool
    """There may be more than `count`, in groups that are not listed."""
    topics: tuple[tuple[str, int], ...]
    """The topics to choose from, with their counts."""
    counted_at: datetime | None

    @property
    def group_count(self) -> int:
        return len(self.groups) + self.groups_left_out

    @property
    def last_at(self) -> datetime | None:
        return max((group.last_at for group in self.groups if group.last_at is not None), default=None)


def dead_letters_view(
    letters: pulse.DeadLetters, topics: Sequence[pulse.TopicInfo], chosen: str | None, total: int = 0
) -> DeadLettersView:
    """Return the view. `topics` is empty if the visitor may not list them; `chosen` is the filter.

    `total` is the number of dead letters of all topics.
    """
    groups = tuple(_group_view(group) for group in letters)
    count = sum(group.count for group in groups)
    of_topics = {topic.topic: topic.dead_lettered for topic in topics if topic.dead_lettered}
    counted: dict[str, int] = {}
    for group in groups:
        counted[group.topic] = counted.get(group.topic, 0) + group.count
    if letters.groups_left_out:
        known = of_topics.get(chosen, 0) if chosen else total
        count = max(count, known)
    offered = {**({chosen: 0} if chosen else {}), **counted, **of_topics}
    return DeadLettersView(
        groups,
        letters.groups_left_out,
        count,
        bool(letters.groups_left_out) and not of_topics,
        tuple(sorted(offered.items())),
        letters.counted_at,
    )


def _group_view(group: pulse.DeadLetterGroup) -> GroupView:
    error = printable.lines(group.sample.last_error or "")
    query = {"status": "DEAD_LETTERED", "topic": group.topic, "error_group": group.error_group}
    return GroupView(
        anchor=f"group-{group.error_group}-{blake2b(group.topic.encode(), digest_size=4).hexdigest()}",
        topic=group.topic,
        error_group=group.error_group,
        is_mixed=group.error_group == tuning.WITHOUT_GROUP,
        count=group.count,
        summary=printable.cause_first(error) or "No error message",
        error=error,
        has_more=printable.has_more(error),
        first_at=group.first_at,
        last_at=group.last_at,
        sample_id=group.sample.id,
        worker_id=group.sample.worker_id or "",
        list_path=f"/jobs?{urlencode(query)}",
    )
