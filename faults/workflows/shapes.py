"""Random shapes of workflows: any acyclic graph, layers, chains, fans and lattices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

SUCCEEDED, FAILED, ALWAYS = "succeeded", "failed", "always"
CONDITIONS = {SUCCEEDED: 8, ALWAYS: 2, FAILED: 1}
FEWEST, MOST = 2, 30
_DENSITIES = (0.05, 0.15, 0.4)
_LAYER_SHARE = 0.6
_LATTICE_WIDTH = 5

Edges = set[tuple[int, int]]


@dataclass(frozen=True)
class Shape:
    """Jobs with the numbers 1 to n. A child has a higher number than its parents."""

    kind: str
    conditions: tuple[str, ...]
    edges: frozenset[tuple[int, int]]  # parent, child

    @property
    def numbers(self) -> range:
        return range(1, len(self.conditions) + 1)

    def parents_of(self, number: int) -> list[int]:
        return sorted(parent for parent, child in self.edges if child == number)

    def condition_of(self, number: int) -> str:
        return self.conditions[number - 1]


def draw_shape(random: Random) -> Shape:
    kind = random.choice(list(_KINDS))
    jobs = random.randint(FEWEST, MOST)
    conditions = tuple(draw_condition(random) for _ in range(jobs))
    return Shape(kind, conditions, frozenset(_KINDS[kind](random, jobs)))


def draw_condition(random: Random) -> str:
    return random.choices(list(CONDITIONS), weights=list(CONDITIONS.values()))[0]


def _any(random: Random, jobs: int) -> Edges:
    density = random.choice(_DENSITIES)
    return {
        (parent, child)
        for child in range(2, jobs + 1)
        for parent in range(1, child)
        if random.random() < density
    }


def _layers(random: Random, jobs: int) -> Edges:
    """Jobs of a layer wait for some of the layer before."""
    width = random.randint(2, 6)
    return {
        (parent, child)
        for child in range(1, jobs + 1)
        for parent in range(1, child)
        if (parent - 1) // width + 1 == (child - 1) // width and random.random() < _LAYER_SHARE
    }


def _chain(_: Random, jobs: int) -> Edges:
    return {(number, number + 1) for number in range(1, jobs)}


def _fan(_: Random, jobs: int) -> Edges:
    """One job, then many, then one."""
    if jobs == FEWEST:
        return {(1, 2)}
    return {(1, number) for number in range(2, jobs)} | {(number, jobs) for number in range(2, jobs)}


def _lattice(_: Random, jobs: int) -> Edges:
    across = {(number, number + 1) for number in range(1, jobs) if number % _LATTICE_WIDTH}
    return across | {(number, number + _LATTICE_WIDTH) for number in range(1, jobs - _LATTICE_WIDTH + 1)}


_KINDS: dict[str, Callable[[Random, int], Edges]] = {
    "any": _any,
    "layers": _layers,
    "chain": _chain,
    "fan": _fan,
    "lattice": _lattice,
}
