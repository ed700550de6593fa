"""What servers send each other. Messages may be lost: polling finds the same work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pulse_server.domain.transitions import Transition
from pulse_server.jobs.rules import Claim, Level


@dataclass(frozen=True, slots=True)
class Wakeup:
    """A message between servers."""

    topics: frozenset[str] | None = frozenset()
    """Topics with new ready jobs. None: look everywhere."""
    ended: tuple[Claim, ...] = ()
    """Claims that ended without a report of their worker."""
    lapsed: tuple[Claim, ...] = ()
    """Claims that ended because their leases expired."""
    claims_unknown: bool = False
    """Claims may have ended without a message: look up all held claims."""
    gate_changed: bool = False
    """Dispatch, a topic or a worker was paused or resumed."""
    settings_changed: bool = False
    """The settings of a topic were set or declared."""
    watching: bool = False
    """The sender has watchers: send it transitions."""
    awaiting: bool = False
    """The sender has clients that wait for jobs: send it transitions that finish one."""
    asking: bool = False
    """The sender has just started: remind it of watchers and of clients that wait for jobs."""
    transitions: tuple[Transition, ...] = ()
    missed: int = 0
    """Transitions that did not fit."""
    watching_progress: bool = False
    """The sender has watchers of progress: send it progress too."""
    progress: tuple[Transition, ...] = ()
    """Transitions with progress. Those over the size limit are dropped: newer ones follow."""
    levels: tuple[Level, ...] = ()
    """The known levels of the new jobs. A topic without a level: look at the whole topic."""


class WakeupLine(Protocol):
    """PostgresWakeupLine, or behind a transaction pooler NoWakeupLine."""

    def announce(self, wakeup: Wakeup) -> None:
        """Notify the other servers soon. Never waits, never fails."""
        ...

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        """Register a callback for each wake-up of another server."""
        ...
