"""pg-boss, with LISTEN/NOTIFY and with batches that are fetched without a pause while they come back full."""

from __future__ import annotations

from benchmarks.peers.environments import NodeEnvironment
from benchmarks.peers.peer import Crew, Peer, Shift, node_program

_PROGRAM = node_program("pg_boss")


def _crew(shift: Shift) -> Crew:
    fetchers, batch = 2, shift.slots // 2
    if shift.scenario in ("drain", "keys"):
        batch = 500
    elif shift.scenario == "idle":
        fetchers, batch = 4, 1
    command = [*_PROGRAM, "work", str(fetchers), str(batch), str(min(10, shift.connections))]
    settings = f"{fetchers} fetchers, batches of {batch}, listen/notify"
    if shift.scenario == "keys":
        command, settings = [*command, "1"], f"{settings}, groupConcurrency 1"
    return Crew([command] * shift.processes, settings)


PEER = Peer(
    name="pg-boss",
    store="postgres",
    environment=NodeEnvironment(("pg-boss@~12.35.0",)),
    program=_PROGRAM,
    unfinished="SELECT count(*) FROM pgboss.job WHERE name = 'bench' AND state < 'completed'",
    crew=_crew,
    keyed="UPDATE pgboss.job SET group_id = 'customer-' || (data ->> 'i')::int % 10000 WHERE name = 'bench'",
)
