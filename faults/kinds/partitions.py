"""Other sessions lock tables and partitions, and days of completed jobs are attached and dropped meanwhile.

A day of long ago has no jobs of the run: a lock on it must stop nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import asyncpg

from faults.audit import Connection
from faults.cluster import OWNER
from faults.disturbances import OLD_DAY
from faults.kinds.database import POSTGRES
from faults.kinds.fault import ALL_WORK, Fault, Kind

if TYPE_CHECKING:
    from faults.world import World

_TABLES = (
    *("lease_checks", "completed_jobs_default", "completed_jobs_kept", "job_steps", "today"),
    "arrivals",
)
_MODES = ("SHARE", "ACCESS EXCLUSIVE", "ACCESS EXCLUSIVE")
# Shorter and longer than a server waits for a statement, which is 5 s.
_LOCK_SECONDS, _DAY_SECONDS = (0.5, 6.5), (3.5, 8.0)
_DAYS = "completed days"
_ROUND_SECONDS, _TRIES = 0.3, 20
_RETURN_SECONDS = 2.0


def _locked_table(random: Random) -> Fault:
    how = {"table": random.choice(_TABLES), "mode": random.choice(_MODES)}
    return Fault(POSTGRES, random.uniform(*_LOCK_SECONDS), ALL_WORK, how)


def _locked_day(random: Random) -> Fault:
    return Fault(_DAYS, random.uniform(*_DAY_SECONDS), frozenset(), {"day": _day(random)})


def _changing_days(random: Random) -> Fault:
    return Fault(_DAYS, random.uniform(*_DAY_SECONDS), frozenset(), {"day": _day(random)})


def _day(random: Random) -> str:
    return f"2001-{random.randint(1, 12):02}-{random.randint(1, 28):02}"


async def _lock_table(world: World, fault: Fault) -> None:
    with suppress(asyncpg.DeadlockDetectedError):
        async with world.cluster.session() as session, session.transaction():
            table = fault.how["table"]
            if table == "today":
                table = await session.fetchval(
                    "SELECT to_char(now() AT TIME ZONE 'UTC', '\"completed_jobs_\"YYYYMMDD')"
                )
            await session.execute(f"LOCK TABLE pulse.{table} IN {fault.how['mode']} MODE")
            with world.recorded(fault.kind, fault.target, **fault.how):
                await asyncio.sleep(fault.seconds)


async def _lock_day(world: World, fault: Fault) -> None:
    async with world.cluster.session(OWNER) as owner:
        is_there = await _attach(owner, fault.how["day"])
        async with owner.transaction():
            if is_there:
                await owner.execute(f"LOCK TABLE {_name(fault.how['day'])} IN ACCESS EXCLUSIVE MODE")
            with world.recorded(fault.kind, fault.target, **fault.how):
                await asyncio.sleep(fault.seconds if is_there else 0)
        await _drop(owner, fault.how["day"])


async def _change_days(world: World, fault: Fault) -> None:
    """Attach a day and drop it, again and again, as retention does."""
    end = asyncio.get_running_loop().time() + fault.seconds
    async with world.cluster.session(OWNER) as owner:
        with world.recorded(fault.kind, fault.target, **fault.how):
            while asyncio.get_running_loop().time() < end:
                await _attach(owner, fault.how["day"])
                await asyncio.sleep(_ROUND_SECONDS)
                await _drop(owner, fault.how["day"])


async def _attach(owner: Connection, day: str) -> bool:
    for _ in range(_TRIES):
        with suppress(asyncpg.LockNotAvailableError):
            if await owner.fetchval(f"SELECT pulse.add_completed_days_v1('{day}', 1) <> '{{}}'"):
                return True
        await asyncio.sleep(_ROUND_SECONDS)
    return False


async def _drop(owner: Connection, day: str) -> None:
    for _ in range(_TRIES):
        with suppress(asyncpg.LockNotAvailableError):
            await owner.fetchval(f"SELECT pulse.drop_completed_day_v1('{day}', now())")
            if await owner.fetchval(f"SELECT to_regclass('{_name(day)}') IS NULL"):
                return
        await asyncio.sleep(_ROUND_SECONDS)


def _name(day: str) -> str:
    return f"pulse.completed_jobs_{day.replace('-', '')}"


KINDS = [
    Kind("tables", _locked_table, _lock_table, 2, _RETURN_SECONDS),
    Kind(OLD_DAY, _locked_day, _lock_day, 2, _RETURN_SECONDS),
    Kind("days", _changing_days, _change_days, 1, _RETURN_SECONDS),
]
