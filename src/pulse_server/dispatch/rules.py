"""The state that dispatch obeys: the pause switches, the topics with limits, the states of workers.

And a connected worker, as operators see it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pulse_server.base.errors import PulseError
from pulse_server.jobs.new_jobs import Submitted
from pulse_server.jobs.rules import ClaimedJob


class WorkerFacts(NamedTuple):
    """What a worker process reports about itself. Nothing depends on it."""

    host: str = ""
    version: str = ""
    """Of the SDK."""
    memory_bytes: int = 0
    """As of the last heartbeat."""
    last_exit: str = ""
    """How the process before it ended, if a supervisor has replaced it."""

    @property
    def took_over_for_memory(self) -> bool:
        """Whether the process before it reached its memory limit, or was killed, perhaps for memory."""
        return "memory" in self.last_exit

    @property
    def took_over_from_a_killed(self) -> bool:
        """Whether the process before it did not stop by itself, so that its jobs lost their attempts."""
        return self.last_exit.startswith("was killed")


NO_FACTS = WorkerFacts()

# Why a worker gets fewer jobs than it has slots: one at a time, or none.
FROZEN = "frozen"
UNREAD = "unread"
CLOSING = "closing"
# What an operator can order of a worker. A running worker has no state.
RUNNING = "running"
QUIET = "quiet"
STOPPING = "stopping"
WORKER_STATES = (QUIET, STOPPING, RUNNING)


class WorkerState(NamedTuple):
    """What an operator has ordered of one worker process."""

    name: str
    """QUIET or STOPPING."""
    reason: str
    set_at: datetime
    set_by: str = ""
    """The user; empty if the server has no users."""


class ConnectedWorker(NamedTuple):
    """A worker as its server sees it."""

    worker_id: str
    topics: tuple[str, ...]
    capacity: int
    connected_at: datetime
    topics_left_out: int = 0
    """How many topics it takes that are not listed."""
    facts: WorkerFacts = NO_FACTS
    concurrency: int = 0
    """How many jobs it runs at once. 0: as many as it has slots."""
    hindrance: str = ""
    """Why it gets fewer jobs than it has slots; empty: it gets as many."""
    run_id: str = ""
    """Of its process."""
    can_stop: bool = False
    """Whether its client obeys an order to stop."""

    def slots(self, *, that_run: bool) -> int:
        """How many jobs it may hold now, or run, as Session.free and Session.free_to_run count."""
        slots = self.capacity if not self.hindrance else int(self.hindrance == FROZEN)
        return min(slots, self.concurrency) if that_run and self.concurrency else slots


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


class LimitedClaims(NamedTuple):
    """The jobs that a claim of limited topics took, and the seconds until a topic's next start, if
    known. Zero: more jobs may start at once. Infinity: once a run has ended."""

    jobs: Sequence[ClaimedJob]
    next_starts: Mapping[str, float]


class LimitedHandover(NamedTuple):
    """The answers for the stored jobs, in order, and the claims made by the same statement."""

    answers: Sequence[Submitted | PulseError]
    claims: LimitedClaims
