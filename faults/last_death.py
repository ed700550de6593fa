"""A worker dies while it holds a job, after the faults of the plan.

The workers that a plan kills may be idle at that moment: in a run of half a minute no lease may expire.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from faults.audit import Connection
from faults.cast import WorkerPlace, leases_of
from faults.history import FREEZE
from tests.eventually import eventually

if TYPE_CHECKING:
    from faults.world import World

_PATIENCE_SECONDS = 90.0
# A report that a worker sent before it was frozen is stored by then.
_REPORTED_SECONDS = 0.5

_HELD = """
SELECT count(*) FROM pulse.jobs
WHERE status = 'RUNNING' AND delivered AND locked_by = $1 AND lease_until > clock_timestamp()
"""
_REAPED = "SELECT count(*) FROM audit.job_changes WHERE outcome = 'lease_expired'"


async def ensure_expired_lease(world: World) -> None:
    """Return once a lease has expired in this run. Kills workers that hold jobs until one has."""
    async with world.cluster.session() as session:

        async def has_reaped() -> bool:
            if await session.fetchval(_REAPED):
                return True
            for place in world.workers.values():
                if await _has_killed_holder(world, place, session):
                    await asyncio.sleep(leases_of(world.ground.seed).total_seconds())
                    break
            return False

        try:
            await eventually(has_reaped, "a lease of a killed worker expires", _PATIENCE_SECONDS)
        except AssertionError as error:
            world.ground.failures.append(f"After the faults, {error}.")


async def _has_killed_holder(world: World, place: WorkerPlace, session: Connection) -> bool:
    """Freeze the worker if it holds a job. Kill it if it holds one then, else let it go on."""
    if not place.is_up or not await session.fetchval(_HELD, place.worker_id):
        return False
    place.freeze()
    with world.recorded(FREEZE, place.present_name):
        await asyncio.sleep(_REPORTED_SECONDS)
    if not await session.fetchval(_HELD, place.worker_id):
        place.thaw()
        return False
    with world.recorded("kill", place.present_name):
        place.kill()
        place.begin()
    return True
