"""The port to the line between replicas. It may lose messages: polling is the floor beneath it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pulse_server.domain.jobs import Claim
from pulse_server.domain.transitions import Transition


@dataclass(frozen=True, slots=True)
class Wakeup:
    """What replicas tell each other."""

    topics: frozenset[str] | None = frozenset()
    """Where there are new ready jobs. None: look everywhere."""
    ended: tuple[Claim, ...] = ()
    """Claims that somebody other than their worker has ended."""
    lapsed: tuple[Claim, ...] = ()
    """Claims that ended because their workers kept silent."""
    claims_unknown: bool = False
    """Claims may have ended that no message names: look up those that are held."""
    gate_changed: bool = False
    """The pause switch was turned."""
    watching: bool = False
    """Somebody watches jobs at the replica that says so: tell it what happens."""
    transitions: tuple[Transition, ...] = ()
    missed: int = 0
    """Transitions that did not fit."""


class WakeupLine(Protocol):
    def announce(self, wakeup: Wakeup) -> None:
        """Tell the other replicas soon. Never waits, never fails."""
        ...

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        """Call back for each wake-up of another replica."""
        ...
