"""Servers are away for longer than a lease: one of them, or all at once."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from faults.cast import LEASE_SECONDS, REPLICAS, WORKERS
from faults.disturbances import ALL_SERVERS, AWAY
from faults.kinds.fault import ALL_WORK, STRANGER, Fault, Kind
from faults.kinds.lives import draw_life
from tests.eventually import eventually

if TYPE_CHECKING:
    from faults.world import World

_SECONDS = (1.5 * LEASE_SECONDS, 4 * LEASE_SECONDS)
_START_SECONDS = 2.0
_PATIENCE_SECONDS = 60.0
# The workers return to their own servers after a while.
_SPREAD_SECONDS = 2.0


def _one(random: Random) -> Fault:
    target = random.choice(REPLICAS)
    life = draw_life(random, target)
    return Fault(target, random.uniform(*_SECONDS), frozenset({target}), {"next": life})


def _all(random: Random) -> Fault:
    links = frozenset(f"{worker}~pulsed" for worker in WORKERS)
    # A server that no worker can reach would take all of them for dead.
    return Fault(
        ALL_SERVERS,
        random.uniform(*_SECONDS),
        ALL_WORK,
        excludes=frozenset(REPLICAS) | frozenset(WORKERS) | links | {STRANGER},
    )


async def _leave(world: World, fault: Fault) -> None:
    place = world.places[fault.target]
    with world.recorded(fault.kind, place.present_name):
        place.kill()
        await asyncio.sleep(fault.seconds)
        place.begin(fault.how["next"])


async def _leave_together(world: World, fault: Fault) -> None:
    """All servers are away. The first one that is back gets all workers, as behind a load balancer.

    Otherwise it would take the workers of the others for dead.
    """
    homes = {name: worker.replica for name, worker in world.workers.items()}
    with world.recorded(fault.kind, fault.target):
        for replica in world.replicas.values():
            replica.kill()
        await asyncio.sleep(fault.seconds)
        for replica in world.replicas.values():
            replica.begin()
        await eventually(lambda: bool(_serving(world)), "a server is back", _PATIENCE_SECONDS)
        for worker in world.workers.values():
            worker.lead_to(_serving(world)[0])
    await asyncio.sleep(_SPREAD_SECONDS)
    for name, worker in world.workers.items():
        if homes[name] in _serving(world) and worker.replica != homes[name]:
            with world.recorded("cut", f"{name}~pulsed", times=1):
                worker.lead_to(homes[name])
                worker.servers.cut()


def _serving(world: World) -> list[str]:
    return [name for name, replica in world.replicas.items() if replica.is_up]


KINDS = [
    Kind("absence", _one, _leave, 1, _START_SECONDS),
    Kind(AWAY, _all, _leave_together, 1, _START_SECONDS + _SPREAD_SECONDS),
]
