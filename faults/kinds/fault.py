"""One fault of a plan, and the definition of a kind of faults."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faults.world import World

# What a fault impairs: servers and workers by their names, or all work.
ALL_WORK = frozenset({"all work"})
# A caller with a server of its own, which no worker of the run is connected to.
STRANGER = "a stranger"


@dataclass(frozen=True)
class Fault:
    """Its target, duration and details, its kind, and its time in seconds after the beginning."""

    target: str
    seconds: float
    impairs: frozenset[str] = frozenset()
    how: Mapping[str, Any] = field(default_factory=dict)
    kind: str = ""
    at: float = 0.0
    aftermath_seconds: float = 0.0  # until its target should work again
    excludes: frozenset[str] = frozenset()  # targets that may have no other fault meanwhile

    @property
    def healed_at(self) -> float:
        return self.at + self.seconds

    @property
    def over_at(self) -> float:
        return self.healed_at + self.aftermath_seconds

    @property
    def targets(self) -> frozenset[str]:
        """The targets that no other fault may have meanwhile."""
        return self.excludes | {self.target}

    def __str__(self) -> str:
        details = "".join(f"  {name}={value}" for name, value in self.how.items())
        return f"{self.at:7.2f} s  {self.kind:<12} {self.target:<22} for {self.seconds:5.2f} s{details}"


@dataclass(frozen=True)
class Kind:
    """How a fault of this kind is drawn, and how it is injected, from its beginning until it is healed."""

    name: str
    draw: Callable[[Random], Fault]
    inflict: Callable[[World, Fault], Coroutine[Any, Any, None]]
    cards: int = 1  # in the deck from which the kinds are dealt
    aftermath_seconds: float = 0.0
