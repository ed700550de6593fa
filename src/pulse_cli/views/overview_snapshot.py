"""The queue at one moment, as `pulse top` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse import DispatchStatus, TopicInfo, WorkerInfo


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the server told, and when by the clock of this machine."""

    dispatch: DispatchStatus
    topics: Sequence[TopicInfo]
    workers: Sequence[WorkerInfo]
    at: datetime
    total: TopicInfo | None = None
    """All topics together, where `topics` are only the busiest of them."""
    topic_count: int = 0
    """How many topics there are, unless all are here."""

    @property
    def everything(self) -> Sequence[TopicInfo]:
        """What adds up to the whole queue."""
        return self.topics if self.total is None else (self.total,)

    @property
    def ready(self) -> int:
        """How many jobs could run at once if there were enough workers."""
        return sum(topic.ready for topic in self.everything)
