"""Processes are killed, stopped, frozen, and started with failpoints armed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from faults.cast import APPLICATIONS, LEASE_SECONDS, REPLICAS, WORKERS
from faults.history import FREEZE
from faults.kinds.fault import Fault, Kind
from faults.kinds.lives import draw_failpoints, draw_life
from faults.places import FAILPOINTS

if TYPE_CHECKING:
    from faults.world import World

# Until it is restarted: at once, as by a service manager, or when its leases have expired.
_GONE_SECONDS = (0.1, 2.5)
# Shorter than a lease, or so long that the job is done elsewhere before the zombie returns.
_SHORT_FREEZE = (0.2, 0.8 * LEASE_SECONDS)
_LONG_FREEZE = (1.5 * LEASE_SECONDS, 3.5 * LEASE_SECONDS)
_ARMED_SECONDS = (3.0, 6.0)
# How long a process takes to start, on a busy machine.
_START_SECONDS = 1.5

_Targets = tuple[str, ...]


# ---------------------------------------------------------------- drawing


def _gone(targets: _Targets, random: Random) -> Fault:
    target = random.choice(targets)
    life = draw_life(random, target)
    return Fault(target, random.uniform(*_GONE_SECONDS), frozenset({target}), {"next": life})


def _frozen(targets: _Targets, random: Random) -> Fault:
    target = random.choice(targets)
    seconds = random.uniform(*random.choice((_SHORT_FREEZE, _LONG_FREEZE)))
    return Fault(target, seconds, frozenset({target}))


def _armed(targets: _Targets, random: Random) -> Fault:
    target = random.choice(targets)
    life = draw_life(random, target)
    armed = replace(life, failpoints=draw_failpoints(random, target))
    return Fault(target, random.uniform(*_ARMED_SECONDS), frozenset({target}), {"armed": armed})


# ---------------------------------------------------------------- injecting


async def _kill(world: World, fault: Fault) -> None:
    place = world.places[fault.target]
    with world.recorded(fault.kind, place.present_name):
        place.kill()
        await asyncio.sleep(fault.seconds)
        place.begin(fault.how["next"])


async def _stop(world: World, fault: Fault) -> None:
    place = world.places[fault.target]
    with world.recorded(fault.kind, place.present_name):
        await place.stop()
        await asyncio.sleep(fault.seconds)
        place.begin(fault.how["next"])


async def _freeze(world: World, fault: Fault) -> None:
    place = world.places[fault.target]
    place.freeze()
    try:
        with world.recorded(fault.kind, place.present_name):
            await asyncio.sleep(fault.seconds)
    finally:
        place.thaw()


async def _arm(world: World, fault: Fault) -> None:
    """The place itself records it, since the process may end long before the time is up."""
    place = world.places[fault.target]
    place.kill()
    place.begin(fault.how["armed"])
    await asyncio.sleep(fault.seconds)
    if place.is_armed:
        place.kill()
        place.begin(replace(fault.how["armed"], failpoints=""))


def _kinds(targets: _Targets, kills: int, stops: int, freezes: int, armed: int) -> list[Kind]:
    return [
        Kind("kill", partial(_gone, targets), _kill, kills, _START_SECONDS),
        Kind("stop", partial(_gone, targets), _stop, stops, _START_SECONDS),
        Kind(FREEZE, partial(_frozen, targets), _freeze, freezes),
        Kind(FAILPOINTS, partial(_armed, targets), _arm, armed, _START_SECONDS),
    ]


KINDS = [
    *_kinds(WORKERS, kills=3, stops=1, freezes=3, armed=2),
    *_kinds(REPLICAS, kills=2, stops=1, freezes=2, armed=3),
    *_kinds(APPLICATIONS, kills=1, stops=1, freezes=1, armed=1),
]
