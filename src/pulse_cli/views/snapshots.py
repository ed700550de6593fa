"""The whole queue at one moment, as `pulse top` shows it."""

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

    @property
    def ready(self) -> int:
        """How many jobs could run at once if there were enough workers."""
        return sum(topic.ready for topic in self.topics)
