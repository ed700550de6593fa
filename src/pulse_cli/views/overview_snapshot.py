"""The queue at one moment, as `pulse top` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse import DispatchStatus, Finding, TopicInfo, WorkerInfo


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The answers of the server, and when they came by the clock of this machine."""

    dispatch: DispatchStatus
    topics: Sequence[TopicInfo]
    workers: Sequence[WorkerInfo]
    at: datetime
    total: TopicInfo | None = None
    """The sum of all topics, where `topics` are only the busiest."""
    findings: Sequence[Finding] = ()
    """What needs attention, most harmful first."""
    topic_count: int = 0
    """The number of all topics, where `topics` are only the busiest."""

    @property
    def everything(self) -> Sequence[TopicInfo]:
        """The topics that add up to the whole queue."""
        return self.topics if self.total is None else (self.total,)

    @property
    def ready(self) -> int:
        """How many jobs are ready to run."""
        return sum(topic.ready for topic in self.everything)
