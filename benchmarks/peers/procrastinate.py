"""procrastinate, on psycopg's asynchronous pool with LISTEN/NOTIFY. Finished rows are kept, as by default."""

from __future__ import annotations

from benchmarks.peers.environments import PythonEnvironment
from benchmarks.peers.peer import Crew, Peer, Shift, python_program

_PROGRAM = python_program("procrastinate")


def _crew(shift: Shift) -> Crew:
    # A slot needs a connection to fetch and to finish: more slots than connections only wait for one.
    slots = 20 if shift.scenario in ("drain", "keys") else shift.slots
    command = [*_PROGRAM, "work", str(slots), str(shift.connections)]
    settings = f"{slots} slots, {shift.connections} connections"
    if shift.scenario == "keys":
        settings += ", a lock for each job"
    return Crew([command] * shift.processes, settings)


PEER = Peer(
    name="procrastinate",
    store="postgres",
    environment=PythonEnvironment(("procrastinate~=3.10", "psycopg[binary,pool]>=3.2", "uvloop")),
    program=_PROGRAM,
    unfinished="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    crew=_crew,
    keyed="UPDATE procrastinate_jobs SET lock = 'customer-' || id % 10000",
)
