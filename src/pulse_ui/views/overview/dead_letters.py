"""Groups of dead letters as the page shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from urllib.parse import urlencode

import pulse
from pulse_text import printable
from pulse_ui import tuning


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
