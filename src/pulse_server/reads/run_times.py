"""Runs that take longer than usual, by the runs of the last day."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta

from pulse_server.base.metrics import latency
from pulse_server.database.connections import Database
from pulse_server.database.statements import statements

# Shorter runs are never long: a topic of milliseconds may have a slow moment.
SHORTEST_LONG_RUN = timedelta(minutes=1)
# Longer than usual: this many times the run time that 99 of 100 runs of the last day did not exceed.
LONGER = 3
# With fewer runs in the last day, nothing is usual yet.
ENOUGH_RUNS = 100
# Topics to look at, those with the longest runs first. Each takes some 4 ms.
MOST_TOPICS_LOOKED_AT = 20

_SQL = statements("overview.sql")


@dataclass(frozen=True, slots=True)
class LongRuns:
    """The runs of a topic that take longer than usual now."""

    count: int
    longest: timedelta
    usual: timedelta
    """99 of 100 runs of the last day took at most this."""


async def long_runs(database: Database) -> dict[str, LongRuns]:
    """Return the runs that take longer than usual, by topic. Uses the connection of the vitals."""
    rows = await database.watch.fetch(
        "long_runs", _SQL["long_runs"], SHORTEST_LONG_RUN, MOST_TOPICS_LOOKED_AT
    )
    found: dict[str, LongRuns] = {}
    for topic, seconds, buckets in rows:
        usual = latency({int(bucket): runs for bucket, runs in json.loads(buckets).items()})
        count = sum(1 for run in seconds if run > LONGER * usual.p99)
        if usual.count >= ENOUGH_RUNS and count:
            found[topic] = LongRuns(count, timedelta(seconds=max(seconds)), timedelta(seconds=usual.p99))
    return found
