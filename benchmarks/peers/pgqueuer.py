"""pgqueuer, on asyncpg's pool and uvloop as its own benchmark runs it, with its default durable tables."""

from __future__ import annotations

from benchmarks.peers.environments import PythonEnvironment
from benchmarks.peers.peer import Crew, Peer, Shift, python_program

_PROGRAM = python_program("pgqueuer")
_CONNECTIONS = 6


def _crew(shift: Shift) -> Crew:
    batch = 10 if shift.scenario == "idle" else shift.slots
    command = [*_PROGRAM, "work", str(batch), str(_CONNECTIONS)]
    settings = f"batches of {batch}, {_CONNECTIONS} connections"
    if shift.scenario == "limit":
        command, settings = [*command, "500"], f"{settings}, concurrency_limit 500"
    return Crew([command] * shift.processes, settings)


PEER = Peer(
    name="pgqueuer",
    store="postgres",
    environment=PythonEnvironment(("pgqueuer~=1.6", "asyncpg>=0.30", "uvloop")),
    program=_PROGRAM,
    # A finished job moves to the log table.
    unfinished="SELECT count(*) FROM pgqueuer",
    crew=_crew,
    has_limit=True,
)
