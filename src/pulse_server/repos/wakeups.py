"""The port to the line between replicas. It may lose messages: polling is the floor beneath it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from pulse_server.domain.jobs import Claim


@dataclass(frozen=True, slots=True)
class Wakeup:
    """What another replica has to tell: topics with new ready jobs (None: look everywhere), ended
    claims, and whether the pause switch was turned."""

    topics: frozenset[str] | None = frozenset()
    ended: tuple[Claim, ...] = ()
    lapsed: tuple[Claim, ...] = ()
    gate_changed: bool = False


class WakeupLine(Protocol):
    def announce(
        self,
        *,
        topics: Collection[str] = (),
        ended: Collection[Claim] = (),
        lapsed: Collection[Claim] = (),
        gate_changed: bool = False,
    ) -> None:
        """Tell the other replicas soon. Never waits, never fails."""
        ...

    def listen(self, heard: Callable[[Wakeup], None]) -> None:
        """Call back for each wake-up of another replica."""
        ...
