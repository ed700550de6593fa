"""The view of pauses: of all dispatch, and of each topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pulse
from pulse_text import printable


@dataclass(frozen=True, slots=True)
class TopicDispatch:
    """One topic."""

    topic: str
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
    rows = [_topic(name, status.topics.get(name), known.get(name)) for name in {*known, *status.topics}]
    rows.sort(key=lambda row: (not row.is_paused, row.topic))
    ready = sum(row.ready for row in rows) if total is None else total.ready
    return DispatchView(
        topics=tuple(rows),
        paused_by=printable.one_line(status.paused_by),
        reason=printable.one_line(status.reason),
        ready=ready,
        held_back=ready if status.paused else sum(row.ready for row in rows if row.is_paused),
    )


def _topic(name: str, pause: pulse.TopicPause | None, topic: pulse.TopicInfo | None) -> TopicDispatch:
    return TopicDispatch(
        topic=name,
        is_paused=pause is not None,
        paused_at=pause.paused_at if pause else None,
        paused_by=printable.one_line(pause.paused_by) if pause else "",
        reason=printable.one_line(pause.reason) if pause else "",
        ready=topic.ready if topic else 0,
        oldest_ready_at=topic.oldest_ready_at if topic else None,
        workers=topic.workers if topic else 0,
    )
