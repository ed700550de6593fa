"""dramatiq on Redis, without the exporter of metrics that its default set of middleware brings."""

from __future__ import annotations

from benchmarks.peers.environments import PythonEnvironment
from benchmarks.peers.peer import Crew, Peer, Shift, python_program

_MODULE = "benchmarks.peers.programs.dramatiq"


def _crew(shift: Shift) -> Crew:
    threads = 8 if shift.scenario in ("drain", "idle") else shift.slots
    command = ["-m", "dramatiq", _MODULE, "--processes", str(shift.processes), "--threads", str(threads)]
    return Crew([command], f"{threads} threads, nothing on disk")


PEER = Peer(
    name="dramatiq",
    store="redis",
    environment=PythonEnvironment(("dramatiq[redis]~=2.2", "hiredis")),
    program=python_program("dramatiq"),
    # A message stays in this hash from its submission until it is acknowledged.
    unfinished="return redis.call('HLEN', 'dramatiq:default.msgs')",
    crew=_crew,
    has_bulk=False,
)
