"""Callers with absurd deadlines: heartbeats, submits and reports with deadlines of milliseconds."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from faults.cast import REPLICAS
from faults.hasty_caller import Haste, call_in_haste
from faults.kinds.fault import Fault, Kind

if TYPE_CHECKING:
    from faults.world import World

_SECONDS = (2.0, 10.0)
_MOST_LOST = 10_000


def _hasty(random: Random) -> Fault:
    how = {"replica": random.choice(REPLICAS), "seed": random.randrange(2**31)}
    return Fault("hasty caller", random.uniform(*_SECONDS), frozenset(), how)


async def _call(world: World, fault: Fault) -> None:
    address = world.replicas[fault.how["replica"]].address
    name = f"hasty-{fault.how['seed']}"
    facts = {"worker_id": name, "replica": fault.how["replica"], "concurrency": _MOST_LOST}
    with world.recorded(fault.kind, fault.target, replica=fault.how["replica"]):
        # Recorded as a process with a fault all the time: it may lose its own jobs.
        world.history.write("began", target=name, **facts)
        world.history.write("ending", target=name)
        haste = Haste(world.history, address, name, Random(fault.how["seed"]), fault.seconds)
        await call_in_haste(haste)


KINDS = [Kind("haste", _hasty, _call, 2)]
