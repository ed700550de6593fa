"""The interface of a job queue to the method: everything specific to one is in its module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.peers.environments import NodeEnvironment, PythonEnvironment

_PROGRAMS = Path(__file__).parent / "programs"
# Postgres lets 100 in by default; producers, the observer and autovacuum need their share.
_CONNECTIONS_FOR_WORKERS = 80


class PeerFailed(Exception):
    """A peer did not meet the method's requirements; the message has its last output."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The workers of a run: `processes` processes that each hold `slots` jobs at a time."""

    scenario: str
    processes: int
    slots: int

    @property
    def connections(self) -> int:
        """How many database connections one of the processes may open."""
        return min(self.slots + 2, 22, _CONNECTIONS_FOR_WORKERS // self.processes)


@dataclass(frozen=True, slots=True)
class Crew:
    """How a peer staffs a shift: arguments of the interpreter, one list for each command to start."""

    commands: Sequence[Sequence[str]]
    settings: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A job queue.

    Its program understands `install`, `produce COUNT PRODUCERS GAP` and, with a bulk API, `bulk COUNT BATCH`;
    the last two print the seconds that they took, after a warm-up of one job more for each caller.
    `unfinished` counts the jobs that are not done: a query for
    Postgres, a script for Redis.
    """

    name: str
    store: Literal["postgres", "redis"]
    environment: PythonEnvironment | NodeEnvironment
    program: Sequence[str]
    unfinished: str
    crew: Callable[[Shift], Crew]
    has_bulk: bool = True
    keyed: str = ""
    """Gives each stored job one of 10,000 keys. The shift `keys` runs one job per key at a time."""
    has_limit: bool = False
    """The shift `limit` runs 500 jobs at once, over all processes."""


def python_program(module: str) -> Sequence[str]:
    return ("-m", f"benchmarks.peers.programs.{module}")


def node_program(module: str) -> Sequence[str]:
    return (str(_PROGRAMS / f"{module}.mjs"),)
