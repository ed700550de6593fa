"""Awa's Python SDK, on its default queue storage: finished jobs are kept until it reuses their partition."""

from __future__ import annotations

from benchmarks.peers.environments import PythonEnvironment
from benchmarks.peers.peer import Crew, Peer, Shift, python_program

_PROGRAM = python_program("awa")


def _crew(shift: Shift) -> Crew:
    command = [*_PROGRAM, "work", str(shift.slots), str(shift.connections)]
    settings = f"{shift.slots} slots, {shift.connections} connections, poll 50 ms"
    return Crew([command] * shift.processes, settings)


PEER = Peer(
    name="awa",
    store="postgres",
    environment=PythonEnvironment(("awa-pg~=0.6.9", "uvloop")),
    program=_PROGRAM,
    unfinished="SELECT count(*) FROM awa.jobs WHERE state NOT IN ('completed', 'failed', 'cancelled')",
    crew=_crew,
)
