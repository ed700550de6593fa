"""More jobs arrive than workers finish, of two priorities, for workers of different topics."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from faults.kinds.fault import Fault, Kind
from faults.saturating import Saturation, saturate

if TYPE_CHECKING:
    from faults.world import World

_SATURATION, _TARGET = "saturation", "workers"
_SECONDS = (6.0, 10.0)


def _saturated(random: Random) -> Fault:
    how = {"load": Saturation(random.randrange(2**31))}
    return Fault(_TARGET, random.uniform(*_SECONDS), frozenset(), how)


async def _saturate(world: World, fault: Fault) -> None:
    with world.recorded(fault.kind, fault.target):
        await saturate(world, fault.how["load"], fault.seconds)


KINDS = [Kind(_SATURATION, _saturated, _saturate, 2)]
SPELLS = KINDS
