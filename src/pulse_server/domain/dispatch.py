"""The state that dispatch obeys: the pause switches, the topics with limits, the states of workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pulse_server.domain.workers import WorkerState


@dataclass(frozen=True, slots=True)
class Pause:
    reason: str
    since: datetime
    by: str = ""
    """The user who paused; empty if the server has no users."""


@dataclass(frozen=True, slots=True)
class DispatchState:
    """The pause switches, the limited topics and the states of workers, as last read from the database."""

    everything: Pause | None = None
    topics: Mapping[str, Pause] = field(default_factory=dict)
    limited: Mapping[str, str] = field(default_factory=dict)
    """The pool of each topic that has limits, paused or not. ADR-0064"""
    ahead: frozenset[str] = frozenset()
    """The topics with limits whose jobs may wait in a worker: no rate, no order."""
    workers: Mapping[tuple[str, str], WorkerState] = field(default_factory=dict)
    """The states that operators have set, by worker id and run id."""
    secret: bytes = field(default=b"", repr=False)
    """Of the queue. Workers get keys that are made from it. Empty: its row is missing. ADR-0084"""

    @property
    def has_pauses(self) -> bool:
        return self.everything is not None or bool(self.topics)

    def open_topics(self, topics: frozenset[str]) -> frozenset[str]:
        """Return the topics that are not paused."""
        if self.everything is not None:
            return frozenset()
        if len(self.topics) <= len(topics):
            return topics - self.topics.keys() if self.topics else topics
        # A set difference would walk all paused topics for each topic in question.
        return frozenset(topic for topic in topics if topic not in self.topics)

    def resumed_by(self, later: DispatchState) -> set[str]:
        """Return the topics that are paused by name now, and not in the later state."""
        return {topic for topic in self.topics if topic not in later.topics}

    def limits_changed_by(self, later: DispatchState) -> set[str]:
        """Return topics whose pool or right to run ahead differs in the later state."""
        if self.limited == later.limited and self.ahead == later.ahead:
            return set()
        return {topic for topic, _ in self.limited.items() ^ later.limited.items()} | (
            self.ahead ^ later.ahead
        )

    def paused(self, topics: Collection[str]) -> Collection[str]:
        """Return the topics that are paused."""
        asked = frozenset(topics)
        return asked - self.open_topics(asked)
