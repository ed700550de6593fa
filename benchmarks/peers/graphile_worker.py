"""graphile-worker, tuned as its page on performance recommends: a local queue and completions in batches."""

from __future__ import annotations

from benchmarks.peers.environments import NodeEnvironment
from benchmarks.peers.peer import Crew, Peer, Shift, node_program

_PROGRAM = node_program("graphile_worker")


def _crew(shift: Shift) -> Crew:
    slots, local_queue = shift.slots, shift.slots + 1
    if shift.scenario == "drain":
        slots, local_queue = 24, 500
    elif shift.scenario == "idle":
        local_queue = 0  # A local queue takes batches for throughput; single jobs start sooner without.
    settings = f"{slots} slots, local queue {local_queue or 'off'}, batched completes"
    command = [*_PROGRAM, "work", str(slots), str(local_queue), str(shift.connections)]
    return Crew([command] * shift.processes, settings)


PEER = Peer(
    name="graphile-worker",
    store="postgres",
    environment=NodeEnvironment(("graphile-worker@~0.18.0", "pg@8")),
    program=_PROGRAM,
    # A finished job's row is deleted.
    unfinished="SELECT count(*) FROM graphile_worker._private_jobs",
    crew=_crew,
)
