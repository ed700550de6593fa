"""Other sessions lock single rows, dozens of them, or the jobs table."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import asyncpg

from faults.cast import LEASE_SECONDS
from faults.kinds.database import POSTGRES
from faults.kinds.fault import ALL_WORK, Fault, Kind

if TYPE_CHECKING:
    from faults.world import World

# Several sessions at once. Each delays the jobs that it holds, and no others.
_HOLDERS = ("rows-1", "rows-2", "rows-3")
WHICH = {
    "running": "status = 'RUNNING' ORDER BY random()",
    "longest running": "status = 'RUNNING' ORDER BY started_at",
    "waiting": "queued AND locked_by IS NULL ORDER BY random()",
    "first in line": "queued AND locked_by IS NULL ORDER BY priority DESC, submitted_at",
}
_NUMBERS = (1, 1, 1, 3, 12, 50)
# Mostly like a session that changes the rows; also like one whose rows refer to them.
_STRENGTHS = ("UPDATE", "UPDATE", "UPDATE", "KEY SHARE")
# Shorter and longer than a lease, and than a server waits for a statement.
_SECONDS = ((0.5, LEASE_SECONDS), (LEASE_SECONDS, 3 * LEASE_SECONDS), (4.0, 7.0))
_MODES = ("SHARE", "ACCESS EXCLUSIVE")
_TABLE_SECONDS = (0.2, 2.0)
_RETURN_SECONDS = 2.0


def _some_rows(random: Random) -> Fault:
    how = {
        "number": random.choice(_NUMBERS),
        "which": random.choice(list(WHICH)),
        "strength": random.choice(_STRENGTHS),
    }
    return Fault(random.choice(_HOLDERS), random.uniform(*random.choice(_SECONDS)), frozenset(), how)


def _table(random: Random) -> Fault:
    return Fault(POSTGRES, random.uniform(*_TABLE_SECONDS), ALL_WORK, {"mode": random.choice(_MODES)})


async def _hold_rows(world: World, fault: Fault) -> None:
    select = f"SELECT id FROM pulse.jobs WHERE {WHICH[fault.how['which']]} LIMIT {fault.how['number']}"
    async with world.cluster.session() as session, session.transaction():
        lock = f"FOR {fault.how['strength']} SKIP LOCKED"
        ids = [str(row["id"]) for row in await session.fetch(f"{select} {lock}")]
        with world.recorded(fault.kind, fault.target, **fault.how, ids=ids):
            # The database may be killed meanwhile: then the lock is gone as well.
            await asyncio.sleep(fault.seconds)


async def _hold_table(world: World, fault: Fault) -> None:
    with suppress(asyncpg.DeadlockDetectedError):
        async with world.cluster.session() as session, session.transaction():
            await session.execute(f"LOCK TABLE pulse.jobs IN {fault.how['mode']} MODE")
            with world.recorded(fault.kind, fault.target, mode=fault.how["mode"]):
                await asyncio.sleep(fault.seconds)


KINDS = [
    Kind("rows", _some_rows, _hold_rows, 6),
    Kind("table", _table, _hold_table, 1, _RETURN_SECONDS),
]
