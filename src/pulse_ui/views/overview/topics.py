"""The table of topics: its order and its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pulse import TopicInfo
from pulse_ui.views.overview.findings import Finding, Severity

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Row:
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
    rows: tuple[Row, ...]
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


def _row(topic: TopicInfo, severity: Severity | None, busiest: int) -> Row:
    attempts = _attempts(topic)
    return Row(
        topic,
        severity,
        topic.last_hour.failed / attempts if attempts else None,
        round(100 * topic.last_hour.completed / busiest, 2) if busiest else 0.0,
        round(100 * topic.last_hour.failed / busiest, 2) if busiest else 0.0,
    )


def _attempts(topic: TopicInfo) -> int:
    return topic.last_hour.completed + topic.last_hour.failed
