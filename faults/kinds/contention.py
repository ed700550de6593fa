"""Contention: other sessions hold locks and use up connections, and late statements are canceled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import asyncpg

from faults.cast import REPLICAS
from faults.cluster import OWNER
from faults.kinds.database import POSTGRES
from faults.kinds.fault import ALL_WORK, Fault, Kind

if TYPE_CHECKING:
    from faults.world import World

# What is locked, and by which statement. Pools run dry while statements wait.
_LOCKS = {
    "everything": "LOCK TABLE pulse.jobs IN ACCESS EXCLUSIVE MODE",
    "running jobs": "SELECT FROM pulse.jobs WHERE status = 'RUNNING' FOR UPDATE",
    "waiting jobs": "SELECT FROM pulse.jobs WHERE queued AND locked_by IS NULL FOR UPDATE",
    "lease checks": "SELECT FROM pulse.lease_checks FOR UPDATE",
    "schedules": "SELECT FROM pulse.schedules FOR UPDATE",
    "the switch": "SELECT FROM pulse.dispatch_control FOR UPDATE",
    "spared workers": "SELECT FROM pulse.spared_workers FOR UPDATE",
    "servers": "SELECT FROM pulse.servers FOR UPDATE",
}
# Some longer than a server waits for a statement, which is 5 s.
_LOCK_SECONDS = (0.5, 6.5)
_STARVED_SECONDS = (1.0, 4.0)
_FEWEST_CONNECTIONS, _MOST_CONNECTIONS = 0, 12
_HURRIED_SECONDS = (1.0, 4.0)
_LATE_MILLISECONDS = (1, 5, 20)
_ROUND_SECONDS = 0.02
# A server that finds no connection tries again; what is refused is closed at once.
CUT_OFF, _STANDING_SECONDS = "no connection", 0.3
_RETURN_SECONDS = 2.0


def _locked(random: Random) -> Fault:
    rows = random.choice(list(_LOCKS))
    return Fault(POSTGRES, random.uniform(*_LOCK_SECONDS), ALL_WORK, {"rows": rows})


def _starved(random: Random) -> Fault:
    left = random.randint(_FEWEST_CONNECTIONS, _MOST_CONNECTIONS)
    return Fault(POSTGRES, random.uniform(*_STARVED_SECONDS), ALL_WORK, {"connections": left})


def _hurried(random: Random) -> Fault:
    late = random.choice(_LATE_MILLISECONDS)
    return Fault(POSTGRES, random.uniform(*_HURRIED_SECONDS), ALL_WORK, {"milliseconds": late})


async def _lock(world: World, fault: Fault) -> None:
    # Rows are locked in any order: a server that has some and waits for others may win the deadlock.
    with suppress(asyncpg.DeadlockDetectedError):
        async with world.cluster.session() as session, session.transaction():
            await session.execute(_LOCKS[fault.how["rows"]])
            with world.recorded(fault.kind, fault.target, rows=fault.how["rows"]):
                await asyncio.sleep(fault.seconds)


async def _starve(world: World, fault: Fault) -> None:
    """Allow the servers fewer connections than they need, and end all they have."""
    async with world.cluster.session() as session:
        with world.recorded(fault.kind, fault.target, connections=fault.how["connections"]):
            await session.execute(f"ALTER ROLE {OWNER} CONNECTION LIMIT {fault.how['connections']}")
            try:
                await session.execute(
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{OWNER}'"
                )
                async with asyncio.TaskGroup() as watching:
                    for name in REPLICAS:
                        watching.create_task(_note_cut_off(world, f"{name}~postgres", fault.seconds))
            finally:
                await session.execute(f"ALTER ROLE {OWNER} CONNECTION LIMIT -1")


async def _note_cut_off(world: World, link: str, seconds: float) -> None:
    """Record when a server had no connection at all: others cannot see then whether it is alive."""
    now = asyncio.get_running_loop().time
    end = now() + seconds
    while now() < end:
        if world.links[link].has_stood(_STANDING_SECONDS):
            await asyncio.sleep(_ROUND_SECONDS)
            continue
        with world.recorded(CUT_OFF, link):
            while now() < end and not world.links[link].has_stood(_STANDING_SECONDS):  # noqa: ASYNC110
                await asyncio.sleep(_ROUND_SECONDS)


async def _hurry(world: World, fault: Fault) -> None:
    """Cancel every statement that takes longer than this, as a timeout does.

    A setting of the role or the database has no effect: the servers set a timeout of their own, which wins.
    To the server both cancelations look the same.
    """
    late = f"clock_timestamp() - query_start > interval '{fault.how['milliseconds']} milliseconds'"
    cancel = (
        f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
        f" WHERE usename = '{OWNER}' AND state = 'active' AND {late}"
    )
    async with world.cluster.session() as session:
        with world.recorded(fault.kind, fault.target, milliseconds=fault.how["milliseconds"]):
            end = asyncio.get_running_loop().time() + fault.seconds
            while asyncio.get_running_loop().time() < end:
                await session.execute(cancel)
                await asyncio.sleep(_ROUND_SECONDS)


KINDS = [
    Kind("locks", _locked, _lock, 2, _RETURN_SECONDS),
    Kind("connections", _starved, _starve, 1, _RETURN_SECONDS),
    Kind("timeouts", _hurried, _hurry, 1, _RETURN_SECONDS),
]
