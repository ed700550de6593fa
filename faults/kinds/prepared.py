"""Prepared transactions that a coordinator left open: they hold rows without a session, after a crash too."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from faults.cast import LEASE_SECONDS
from faults.cluster import AWAY
from faults.kinds.fault import Fault, Kind
from faults.kinds.rows import WHICH

if TYPE_CHECKING:
    from faults.world import World

# As the holders of rows: what they hold is delayed, and no other job.
_TARGET = "rows-prepared"
_NUMBERS = (1, 3, 12, 150)
_STRENGTHS = ("UPDATE", "KEY SHARE")
_ENDS = ("COMMIT", "ROLLBACK")
_SECONDS = ((0.5, LEASE_SECONDS), (4.0, 8.0))
_AGAIN_SECONDS = 0.2


def _left_open(random: Random) -> Fault:
    how = {
        "which": random.choice(list(WHICH)),
        "number": random.choice(_NUMBERS),
        "strength": random.choice(_STRENGTHS),
        "end": random.choice(_ENDS),
        "name": f"chaos-{random.randrange(2**31)}",
    }
    return Fault(_TARGET, random.uniform(*random.choice(_SECONDS)), frozenset(), how)


async def _leave_open(world: World, fault: Fault) -> None:
    how = fault.how
    select = f"SELECT id FROM pulse.jobs WHERE {WHICH[how['which']]} LIMIT {how['number']}"
    async with world.cluster.session() as session:
        await session.execute("BEGIN")
        rows = await session.fetch(f"{select} FOR {how['strength']} SKIP LOCKED")
        ids = [str(row["id"]) for row in rows]
        with world.recorded(fault.kind, fault.target, **how, ids=ids):
            try:
                await session.execute(f"PREPARE TRANSACTION '{how['name']}'")
                await asyncio.sleep(fault.seconds)
            finally:
                await asyncio.shield(_finish(world, how["name"], how["end"]))


async def _finish(world: World, name: str, end: str) -> None:
    """End it, also behind a crash of the database: nothing else ever would."""
    while True:
        try:
            async with world.cluster.session() as session:
                if await session.fetchval(
                    "SELECT EXISTS (SELECT FROM pg_prepared_xacts WHERE gid = $1)", name
                ):
                    await session.execute(f"{end} PREPARED '{name}'")
                return
        except AWAY:
            await asyncio.sleep(_AGAIN_SECONDS)


KINDS = [Kind("prepared", _left_open, _leave_open, 2)]
