"""Oban for Python, on uvloop as its own command line runs it. Finished rows are kept, its only mode."""

from __future__ import annotations

from benchmarks.peers.environments import PythonEnvironment
from benchmarks.peers.peer import Crew, Peer, Shift, python_program

_PROGRAM = python_program("oban")
_CONNECTIONS = 4


def _crew(shift: Shift) -> Crew:
    command = [*_PROGRAM, "work", str(shift.slots), str(_CONNECTIONS)]
    return Crew([command] * shift.processes, f"{shift.slots} slots, {_CONNECTIONS} connections")


PEER = Peer(
    name="oban",
    store="postgres",
    environment=PythonEnvironment(
        ("oban~=0.7.0", "psycopg[binary,pool]>=3.2", "uvloop"), oldest_python=(3, 12)
    ),
    program=_PROGRAM,
    unfinished="""
    SELECT count(*) FROM oban_jobs WHERE state IN ('available', 'executing', 'scheduled', 'retryable')
    """,
    crew=_crew,
)
