"""What is only read: statement, dataclass and cache of a noun in one module, without a service.

It imports any room below; only `app` and `server` import it. Start with `rpcs.py`, which names the module of
each RPC.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulse_server.base.loops import Loop
from pulse_server.dispatch import DispatchRoom
from pulse_server.dispatch.roster import Roster
from pulse_server.doors.admission import Doors
from pulse_server.topics import TopicsRoom
from pulse_server.views.attention import Attention, DeadLetters
from pulse_server.views.explanations import Explanations
from pulse_server.views.records import Audit, Exports, Searches
from pulse_server.views.rpcs import AuditRpcs, ExportRpcs, OverviewRpcs
from pulse_server.views.servers import SERVERS_INTERVAL, Servers, name_of_process, sparing_of
from pulse_server.views.statistics import STATISTICS_INTERVAL, Minutes, Statistics
from pulse_server.wakeups import Foundation


@dataclass(frozen=True, slots=True)
class ViewsRoom:
    servers: Servers
    statistics: Statistics
    overview_rpcs: OverviewRpcs
    export_rpcs: ExportRpcs
    audit_rpcs: AuditRpcs

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.statistics.loop, self.servers.loop)


def servers_of(base: Foundation, roster: Roster) -> Servers:
    return Servers(
        base.database,
        name_of_process(),
        roster.connected,
        interval=SERVERS_INTERVAL,
        sparing=sparing_of(base.settings),
        address=base.settings.grpc_address,
    )


def views_of(
    base: Foundation,
    servers: Servers,
    attention: Attention,
    audit: Audit,
    dispatch: DispatchRoom,
    topics: TopicsRoom,
    doors: Doors,
) -> ViewsRoom:
    database = base.database
    minutes = Minutes(database)
    explanations = Explanations(
        database, servers, dispatch.roster, base.settings, limits_pending=topics.settings.pending_of
    )
    return ViewsRoom(
        servers,
        Statistics(minutes, base.metrics, interval=STATISTICS_INTERVAL),
        OverviewRpcs(
            attention,
            minutes,
            DeadLetters(database),
            servers,
            base.watchers,
            dispatch.gate,
            doors.responses,
            explanations,
        ),
        ExportRpcs(Exports(database), Searches(database), doors.responses),
        AuditRpcs(audit),
    )
