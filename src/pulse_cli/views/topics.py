"""How topics look to people: how much, how old, how fast."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pulse_cli.text import printable
from pulse_cli.text.moments import age, now
from pulse_cli.text.numbers import compact
from pulse_cli.views.output import View
from pulse_cli.views.shapes import topic_shape
from pulse_cli.views.tables import QUIET, Cell, Column, Line, Row, lay_out, without_empty

if TYPE_CHECKING:
    import pulse

TOPIC_COLUMNS = (
    Column("TOPIC", shortest=20),
    Column("READY", right=True),
    Column("OLDEST", right=True, drop=2),
    Column("WAIT", right=True, drop=5),
    Column("RUN", right=True),
    Column("DEAD", right=True),
    Column("CANCELED", right=True, drop=9),
    Column("IN/MIN", right=True, drop=8),
    Column("DONE/MIN", right=True, drop=1),
    Column("FAIL/MIN", right=True, drop=3),
    Column("IN/H", right=True, drop=10),
    Column("DONE/H", right=True, drop=11),
    Column("FAIL/H", right=True, drop=12),
    Column("WORKERS", right=True, drop=4),
    Column(""),
)
_RATES = ("submitted", "completed", "failed", "dead_lettered")
_FIELDS = (
    *("topic", "ready", "waiting", "running", "dead_lettered", "canceled", "oldest_ready_at", "paused"),
    *("workers", *(f"last_minute.{rate}" for rate in _RATES), *(f"last_hour.{rate}" for rate in _RATES)),
)


def topic_view() -> View[pulse.TopicInfo]:
    """Return how topics are listed."""
    present = now()
    return View(TOPIC_COLUMNS, lambda topic: topic_row(topic, present), topic_shape, _FIELDS)


def topic_table(
    topics: Sequence[pulse.TopicInfo], width: int | None, total: pulse.TopicInfo | None = None
) -> list[Line]:
    """Return the lines of the table of topics, with what they come to together if there are several.

    `total` stands for all topics, where these are only some of them.
    """
    present = now()
    rows = [topic_row(topic, present) for topic in topics]
    if len(topics) > 1:
        rows.append(total_row(topics if total is None else [total], present))
    return lay_out(*without_empty(TOPIC_COLUMNS, rows), width)


def topic_row(topic: pulse.TopicInfo, present: datetime) -> Row:
    """Return a topic's row: what needs somebody is red, what is nothing is quiet."""
    minute, hour = topic.last_minute, topic.last_hour
    return [
        Cell(printable.one_line(topic.topic)),
        _count(topic.ready),
        Cell(age(topic.oldest_ready_at, present), "" if topic.oldest_ready_at else QUIET),
        _count(topic.waiting),
        _count(topic.running, "blue"),
        _count(topic.dead_lettered, "bold red"),
        _count(topic.canceled),
        _count(minute.submitted),
        _count(minute.completed, "green"),
        _count(minute.failed, "red"),
        _count(hour.submitted),
        _count(hour.completed),
        _count(hour.failed),
        Cell("none", "bold yellow") if topic.ready and not topic.workers else _count(topic.workers),
        Cell("paused" if topic.paused else "", "bold red"),
    ]


def total_row(topics: Sequence[pulse.TopicInfo], present: datetime) -> Row:
    """Return the row of all topics together. Workers are not added up: one may serve several."""
    counts = [sum(column) for column in zip(*map(_counts, topics), strict=True)]
    oldest = min((t.oldest_ready_at for t in topics if t.oldest_ready_at), default=None)
    texts = ["total", compact(counts[0]), age(oldest, present), *map(compact, counts[1:]), "", ""]
    return [Cell(text, "bold") for text in texts]


def _counts(topic: pulse.TopicInfo) -> Sequence[int]:
    minute, hour = topic.last_minute, topic.last_hour
    return (
        *(topic.ready, topic.waiting, topic.running, topic.dead_lettered, topic.canceled),
        *(minute.submitted, minute.completed, minute.failed),
        *(hour.submitted, hour.completed, hour.failed),
    )


def _count(number: int, style: str = "") -> Cell:
    return Cell(compact(number), style if number else QUIET)
