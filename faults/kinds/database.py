"""Postgres is killed, ends its sessions, or is frozen."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from faults.bank import BANK
from faults.cast import LEASE_SECONDS
from faults.clock import CLOCK
from faults.cluster import OWNER
from faults.kinds.fault import ALL_WORK, Fault, Kind

if TYPE_CHECKING:
    from faults.world import World

# One fault at a time: they all have this target.
POSTGRES = "postgres"
_AWAY_SECONDS = (0.1, 2.5)
_FREEZE_SECONDS = (0.3, 3 * LEASE_SECONDS)
# Crash recovery and new connections.
_RETURN_SECONDS = 2.0

# Of servers, workers and applications.
_SESSIONS = f"FROM pg_stat_activity WHERE usename IN ('{OWNER}', '{BANK}') AND pid <> pg_backend_pid()"


def _away(random: Random) -> Fault:
    return Fault(POSTGRES, random.uniform(*_AWAY_SECONDS), ALL_WORK)


def _instant(random: Random) -> Fault:
    return Fault(POSTGRES, 0.0, ALL_WORK)


def _some_sessions(random: Random) -> Fault:
    return Fault(POSTGRES, 0.0, ALL_WORK, {"share": random.choice((0.2, 0.5, 1.0))})


def _standing_still(random: Random) -> Fault:
    return Fault(POSTGRES, random.uniform(*_FREEZE_SECONDS), ALL_WORK)


async def _kill_postmaster(world: World, fault: Fault) -> None:
    with world.recorded(fault.kind, fault.target):
        await world.cluster.kill_postmaster()
        await asyncio.sleep(fault.seconds)
        await world.cluster.start_again()


async def _kill_backend(world: World, fault: Fault) -> None:
    async with world.cluster.session() as session:
        pid = await session.fetchval(f"SELECT pid {_SESSIONS} ORDER BY state, random() LIMIT 1")
    if pid is not None:
        with world.recorded(fault.kind, fault.target):
            await world.cluster.kill_backend(pid)


async def _terminate(world: World, fault: Fault) -> None:
    with world.recorded(fault.kind, fault.target):
        async with world.cluster.session() as session:
            await session.execute(
                f"SELECT pg_terminate_backend(pid) {_SESSIONS} AND random() <= {fault.how['share']}"
            )


async def _halt(world: World, fault: Fault) -> None:
    world.cluster.freeze()
    try:
        with world.recorded(fault.kind, fault.target):
            await asyncio.sleep(fault.seconds)
    finally:
        world.cluster.thaw()


def _wrong(random: Random) -> Fault:
    """Back by up to a lease. Ahead only by a little: leases end earlier by as much."""
    seconds = random.choice((-1, -1, 0.2)) * random.uniform(0.2, LEASE_SECONDS)
    return Fault(POSTGRES, 0.0, ALL_WORK, {"seconds": round(seconds, 3)})


async def _set_clock(world: World, fault: Fault) -> None:
    """The clock stays as it is set."""
    with world.recorded(fault.kind, fault.target, seconds=fault.how["seconds"]):
        world.cluster.clock.step(fault.how["seconds"])


KINDS = [
    Kind("postmaster", _away, _kill_postmaster, 1, _RETURN_SECONDS),
    Kind("backend", _instant, _kill_backend, 1, _RETURN_SECONDS),
    Kind("terminate", _some_sessions, _terminate, 1, _RETURN_SECONDS),
    Kind("halt", _standing_still, _halt, 1, _RETURN_SECONDS),
    Kind(CLOCK, _wrong, _set_clock, 1, _RETURN_SECONDS),
]
