"""The port to the line between replicas. It may lose messages: polling is the floor beneath it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from pulse_server.domain.jobs import Claim
from pulse_server.domain.transitions import Transition


@dataclass(frozen=True, slots=True)
class Wakeup:
    """What another replica has to tell: topics with new ready jobs (None: look everywhere), ended
    claims, and whether the pause switch was turned."""

    topics: frozenset[str] | None = frozenset()
    ended: tuple[Claim, ...] = ()
    lapsed: tuple[Claim, ...] = ()
    gate_changed: bool = False
    watching: bool = False
    """Somebody there watches jobs: tell what happens."""
    transitions: tuple[Transition, ...] = ()
    missed: int = 0
    """Transitions that did not fit."""


class WakeupLine(Protocol):
    def announce(
        self,
        *,
        topics: Collection[str] = (),
        ended: Collection[Claim] = (),
        lapsed: Collection[Claim] = (),
        gate_changed: bool = False,
        watching: bool = False,
        transitions: Collection[Transition] = (),
    ) -> None:
        """Tell the other replicas soon. Never waits, never fails."""
        ...

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        """Call back for each wake-up of another replica."""
        ...
