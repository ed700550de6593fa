"""A connected worker, as operators see it."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


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
