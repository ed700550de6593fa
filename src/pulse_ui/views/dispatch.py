"""The view of pauses: of all dispatch, and of each topic; and whether the jobs of a topic start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pulse
from pulse_text import printable


@dataclass(frozen=True, slots=True)
class TopicState:
    """Whether jobs of a topic start, in a word."""

    name: str
    style: str
    """The class of its mark. A color has one meaning: amber for paused, red for no worker."""
    mark: str


_PAUSED = TopicState("Paused", "paused", "❚❚")
_ALL_PAUSED = TopicState("Paused (everything)", "paused", "❚❚")
_RUNNING = TopicState("Running", "completed", "▶")
_UNSERVED = TopicState("No worker", "dead_lettered", "✕")
_IDLE = TopicState("No worker", "idle", "○")
_LIMITED = {
    "held": TopicState("Held", "paused", "❚❚"),
    "spent": TopicState("Rate spent", "running", "◷"),
    "full": TopicState("Full", "running", "●"),
}


def topic_state(
    topic: pulse.TopicInfo | None, status: pulse.DispatchStatus | None, name: str, limits_state: str = ""
) -> TopicState:
    """Return the first obstacle to the jobs of a topic: a pause, a hold, no worker, a full limit."""
    if status is not None and name in status.topics:
        return _PAUSED
    if status is not None and status.paused:
        return _ALL_PAUSED
    if limits_state == "held":
        return _LIMITED[limits_state]
    if topic is None or not topic.workers:
        return _UNSERVED if topic is not None and topic.ready else _IDLE
    return _LIMITED.get(limits_state, _RUNNING)


@dataclass(frozen=True, slots=True)
class TopicDispatch:
    """One topic."""

    topic: str
    state: TopicState
    is_paused: bool
    """By its own name; it may also be paused with everything."""
    paused_at: datetime | None
    paused_by: str
    """The user who paused it; empty if the server has no users."""
    reason: str
    ready: int
    """Its ready jobs."""
    oldest_ready_at: datetime | None
    workers: int


@dataclass(frozen=True, slots=True)
class DispatchView:
    """All topics, paused ones first."""

    topics: tuple[TopicDispatch, ...]
    paused_by: str
    """The user who paused everything."""
    reason: str
    """Why everything is paused."""
    ready: int
    held_back: int
    """The ready jobs that wait for a resume."""


def dispatch_view(
    status: pulse.DispatchStatus, topics: Sequence[pulse.TopicInfo], total: pulse.TopicInfo | None = None
) -> DispatchView:
    """Return the state of the topics given, and of all paused topics.

    `total` is the sum of all topics. It is given if `topics` is not complete.
    """
    known = {topic.topic: topic for topic in topics}
    rows = [_topic(name, status, known.get(name)) for name in {*known, *status.topics}]
    rows.sort(key=lambda row: (not row.is_paused, row.topic))
    ready = sum(row.ready for row in rows) if total is None else total.ready
    return DispatchView(
        topics=tuple(rows),
        paused_by=printable.one_line(status.paused_by),
        reason=printable.one_line(status.reason),
        ready=ready,
        held_back=ready if status.paused else sum(row.ready for row in rows if row.is_paused),
    )


def _topic(name: str, status: pulse.DispatchStatus, topic: pulse.TopicInfo | None) -> TopicDispatch:
    pause = status.topics.get(name)
    return TopicDispatch(
        topic=name,
        state=topic_state(topic, status, name),
        is_paused=pause is not None,
        paused_at=pause.paused_at if pause else None,
        paused_by=printable.one_line(pause.paused_by) if pause else "",
        reason=printable.one_line(pause.reason) if pause else "",
        ready=topic.ready if topic else 0,
        oldest_ready_at=topic.oldest_ready_at if topic else None,
        workers=topic.workers if topic else 0,
    )
