"""Looks from outside, as of one snapshot: at limits, and at workflows that have no notice.

Every lane with work and room is in line, a sweep finds nothing, and the tables of workflows agree.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from faults.audit import Connection
from faults.cluster import AWAY
from faults.history import History
from faults.workflows.tables import read_workflows

if TYPE_CHECKING:
    from faults.world import World

_SECONDS = 0.7
_TIMEOUT_SECONDS = 2.0

# Jobs stand in a lane; no place of it is in the line or waits, no notice would open it, and not all places
# are taken. One statement: as of one snapshot.
_STRANDED = """
WITH work AS (
    SELECT DISTINCT job.topic, job.lane
    FROM pulse.jobs AS job
    WHERE job.queued AND job.tier IS NOT NULL AND job.locked_by IS NULL
)
SELECT work.topic, work.lane
FROM work
JOIN pulse.limit_policies AS policy ON policy.topic = work.topic AND policy.laned
LEFT JOIN pulse.lanes AS lane ON lane.topic = work.topic AND lane.lane = work.lane
WHERE NOT EXISTS (
      SELECT FROM pulse.lane_line AS place WHERE place.topic = work.topic AND work.lane = ANY(place.lanes))
  AND NOT EXISTS (
      SELECT FROM pulse.limit_notices AS notice
      WHERE notice.pool = policy.pool AND notice.topic = work.topic
        AND work.lane = ANY(notice.lanes))
  AND COALESCE(lane.waiting, 0) = 0
  AND (policy.per_lane IS NULL OR work.lane = '' OR (
      SELECT count(*) FROM pulse.jobs AS job
      WHERE job.topic = work.topic AND job.lane = work.lane AND job.locked_by IS NOT NULL
  ) < CASE WHEN policy.ordered THEN 1 ELSE COALESCE(lane.limit, policy.per_lane) END)
"""


async def watch(world: World) -> None:
    """Look again and again, until canceled."""
    while True:
        # The database may be away: then the next look counts.
        with suppress(*AWAY):
            async with asyncio.timeout(_TIMEOUT_SECONDS), world.cluster.session() as session:
                await look(world, session)
        await asyncio.sleep(_SECONDS)


async def look(world: World, session: Connection) -> None:
    """Record what is wrong at this moment."""
    for row in await session.fetch(_STRANDED):
        world.history.write("stranded", topic=row["topic"], lane=row["lane"])
    swept = await session.fetchrow("SELECT pools, lanes FROM pulse.sweep_limits_v1()")
    assert swept is not None
    if any(swept):
        world.history.write("repaired", pools=swept["pools"], lanes=swept["lanes"])
    await look_at_workflows(session, world.history)


async def look_at_workflows(session: Connection, history: History) -> None:
    """Record what is wrong with unfinished workflows."""
    async with session.transaction(isolation="repeatable_read", readonly=True):
        tables = await read_workflows(session, finished=False)
    for wrong in tables.wrong():
        history.write("out_of_step", rule=wrong.rule, text=wrong.what, job_id=wrong.job_id)
