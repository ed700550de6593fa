"""A server starts while Postgres recovers from a crash: it has to wait, not to exit."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from faults.cast import REPLICAS
from faults.kinds.database import POSTGRES
from faults.kinds.fault import ALL_WORK, Fault, Kind
from faults.kinds.lives import draw_life
from pulse_server.embedded.cluster import read_postmaster
from tests.server.outage_postgres import children_of

if TYPE_CHECKING:
    from faults.world import World

RECOVERING = "recovering"
# Shorter than any bound on the wait for a database.
_SECONDS = (1.0, 5.0)
_AWAY_SECONDS = (0.0, 0.0, 1.5)
_CATCH_SECONDS, _LOOK_SECONDS = 3.0, 0.001
_RETURN_SECONDS = 3.0


def _drawn(random: Random) -> Fault:
    replica = random.choice(REPLICAS)
    how = {"replica": replica, "next": draw_life(random, replica), "away": random.choice(_AWAY_SECONDS)}
    seconds = random.uniform(*_SECONDS)
    return Fault(POSTGRES, seconds, ALL_WORK, how, excludes=frozenset({replica}))


async def _recover(world: World, fault: Fault) -> None:
    """Kill both, and start both: recovery is held up for as long as the fault lasts."""
    place = world.places[fault.how["replica"]]
    with world.recorded(fault.kind, fault.target, replica=place.name):
        place.kill()
        await world.cluster.kill_postmaster()
        place.begin(fault.how["next"])
        await asyncio.sleep(fault.how["away"])
        starting = asyncio.create_task(world.cluster.start_again())
        startup = await _startup_process(world.cluster.data)
        if startup is not None:
            with suppress(ProcessLookupError):
                os.kill(startup, signal.SIGSTOP)
                await asyncio.sleep(fault.seconds)
                os.kill(startup, signal.SIGCONT)
        await starting


async def _startup_process(data: Path) -> int | None:
    """Return the process that recovers the database, unless it is done before it is seen."""
    now = asyncio.get_running_loop().time
    end = now() + _CATCH_SECONDS
    while now() < end:
        server = read_postmaster(data)
        for pid in children_of(server.pid) if server is not None and not server.is_ready else ():
            if _is_startup(pid):
                return pid
        await asyncio.sleep(_LOOK_SECONDS)
    return None


def _is_startup(pid: int) -> bool:
    try:
        return b"startup" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


KINDS = [Kind(RECOVERING, _drawn, _recover, 2, _RETURN_SECONDS)]
