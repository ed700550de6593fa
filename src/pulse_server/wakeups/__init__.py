"""Messages between servers, and the clients that follow jobs over all servers.

Messages may be lost: polling finds the same work. It imports `jobs`, `database` and `base`. Start with
`watchers.py`, then `line.py`, which sends them by NOTIFY.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulse_server.base.metrics import Metrics
from pulse_server.database.connections import Database, Place
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.settings import Settings
from pulse_server.wakeups.line import NoWakeupLine, PostgresWakeupLine, wakeup_line
from pulse_server.wakeups.watchers import Watchers


@dataclass(frozen=True, slots=True)
class Foundation:
    """What the rooms above are made with."""

    settings: Settings
    database: Database
    place: Place
    metrics: Metrics
    jobs: PostgresJobRepo
    line: NoWakeupLine | PostgresWakeupLine
    watchers: Watchers


def foundation_of(
    settings: Settings, database: Database, place: Place, metrics: Metrics, line: NoWakeupLine | None
) -> Foundation:
    """Without a `line`, the one that the settings ask for."""
    line_of_server = line or wakeup_line(database.connector, settings.lease_ttl)
    jobs = place(PostgresJobRepo(database, settings.runs, settings.lease_ttl))
    return Foundation(settings, database, place, metrics, jobs, line_of_server, Watchers(line_of_server))
