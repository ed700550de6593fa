"""How a run ends: everything is healed, all jobs finish, all processes stop."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from faults.audit import Connection, record_clock
from faults.regulating import return_all_limits
from faults.watching import look
from faults.world import World
from tests.eventually import eventually

_PATIENCE_SECONDS = 120.0
_STOP_SECONDS = 60.0
_LATE_SECONDS = 3

# Shorten the backoff: a job whose leases expired four times would wait 16 s before it runs again.
_HURRY = """
UPDATE pulse.jobs SET next_run_at = clock_timestamp()
WHERE status IN ('PENDING', 'RETRYING') AND NOT queued AND next_run_at > clock_timestamp() AND held IS NULL
"""
_LATE = f"""
SELECT count(*) FROM pulse.schedules
WHERE NOT paused AND next_run_at < clock_timestamp() - interval '{_LATE_SECONDS} seconds'
"""


async def settle(world: World) -> None:
    """Return once all work is done, or a bound has passed: the checker reports what is left."""
    await asyncio.gather(*(each.stop(_STOP_SECONDS) for each in world.applications.values()))
    async with world.cluster.session() as session:
        await return_all_limits(world.operator)
        await _expect(world, "schedules fire in time again", lambda: _is_zero(session, _LATE))
        await _expect(world, "the schedules can be deleted", lambda: _has_no_schedules(world, session))
        await _finish(world, session)
        world.history.write("settled")
        await look(world, session)
        await record_clock(session, world.history)


async def stop_all(world: World) -> None:
    """SIGTERM all processes at once: each drains and exits with 0."""
    await asyncio.gather(*(place.stop() for place in world.places.values()))


async def _expect(world: World, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
    try:
        await eventually(condition, what, _PATIENCE_SECONDS)
    except AssertionError as error:
        world.ground.failures.append(f"After everything was healed, {error}.")


async def _has_no_schedules(world: World, session: Connection) -> bool:
    ids = [row["id"] for row in await session.fetch("SELECT id::text FROM pulse.schedules")]
    for schedule_id in ids:
        await world.operator.delete_schedule(schedule_id)
    return not ids


async def _finish(world: World, session: Connection) -> None:
    """Wait for the remaining jobs. Limits decide how long a backlog takes, so some job has to end in time."""
    fewest, since = math.inf, time.monotonic()
    while unfinished := await session.fetchval("SELECT count(*) FROM pulse.jobs WHERE finished_at IS NULL"):
        if unfinished < fewest:
            fewest, since = unfinished, time.monotonic()
        elif time.monotonic() - since > _PATIENCE_SECONDS:
            what = f"{unfinished:,} jobs are unfinished, and no job ended for {_PATIENCE_SECONDS:.0f} s"
            world.ground.failures.append(f"After everything was healed, {what}.")
            return
        await session.execute(_HURRY)
        await asyncio.sleep(0.1)


async def _is_zero(session: Connection, count: str) -> bool:
    return not await session.fetchval(count)
