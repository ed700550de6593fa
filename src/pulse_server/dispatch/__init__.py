"""Dispatch: which worker gets which job. It holds the connected workers, and claims for them.

Only `rpcs.py` knows gRPC. The room imports `wakeups`, `jobs`, `doors`, `database` and `base`. Start with the
concepts in docs/architecture.md, then `hub.py`; `publisher.py` is what every transition passes after its
commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pulse_server.base.loops import Loop
from pulse_server.dispatch.claims import Claims, Reconciler, SparedWorkers
from pulse_server.dispatch.hub import Hub
from pulse_server.dispatch.publisher import Publisher
from pulse_server.dispatch.roster import Roster
from pulse_server.dispatch.rpcs import DispatchRpcs
from pulse_server.dispatch.rules import ConnectedWorker
from pulse_server.dispatch.service import GATE_INTERVAL, Dispatch, Gate
from pulse_server.dispatch.store import PostgresDispatchRepo, PostgresLimitedClaims
from pulse_server.doors.callers import Callers
from pulse_server.wakeups import Foundation


@dataclass(frozen=True, slots=True)
class DispatchRoom:
    roster: Roster
    publisher: Publisher
    spared_workers: SparedWorkers
    claims: Claims
    gate: Gate
    reconciler: Reconciler
    hub: Hub
    rpcs: DispatchRpcs

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.gate.loop, *self.reconciler.loops, self.spared_workers.loop)


def dispatch_of(
    base: Foundation,
    limits: PostgresLimitedClaims,
    roster: Roster,
    publisher: Publisher,
    callers: Callers,
    connections_of: Callable[[str], Awaitable[Sequence[ConnectedWorker]]],
) -> DispatchRoom:
    """`connections_of` returns the connections of a worker, over all servers."""
    settings = base.settings
    spared_workers = SparedWorkers(base.jobs, settings.lease_ttl)
    claims = Claims(base.jobs, limits, publisher, spared_workers, settings.lease_ttl)
    switches = base.place(PostgresDispatchRepo(base.database))
    gate = Gate(switches, roster, claims, interval=GATE_INTERVAL)
    base.line.listen(gate.heard)
    reconciler = Reconciler(claims, roster, interval=settings.heartbeat_interval)
    return DispatchRoom(
        roster,
        publisher,
        spared_workers,
        claims,
        gate,
        reconciler,
        Hub(roster, claims, reconciler, base.line, tick=settings.dispatch_interval),
        DispatchRpcs(Dispatch(switches, gate, publisher, connections_of), callers),
    )
