"""Links are slow, cut, silent or closed, and answers are lost after the request was carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from faults.cast import APPLICATIONS, LEASE_SECONDS, REPLICAS, WORKERS
from faults.kinds.fault import Fault, Kind
from faults.proxy import Condition, Way

if TYPE_CHECKING:
    from faults.links import Link
    from faults.world import World

# By the name of the link: the process that a fault of it impairs.
_TO_SERVERS = {f"{worker}~pulsed": frozenset({worker}) for worker in WORKERS}
_TO_DATABASE = {f"{replica}~postgres": frozenset({replica}) for replica in REPLICAS}
# An application has other servers.
_OF_APPLICATIONS: dict[str, frozenset[str]] = {
    f"{application}~{replica}": frozenset() for application in APPLICATIONS for replica in REPLICAS
}
# To the tables of the bank. Other jobs go on.
_TO_BANK: dict[str, frozenset[str]] = {f"{name}~bank": frozenset() for name in (*WORKERS, *APPLICATIONS)}
_ALL = _TO_SERVERS | _TO_DATABASE | _OF_APPLICATIONS | _TO_BANK

# Both shorter and longer than a lease.
_SECONDS = (0.3, 3 * LEASE_SECONDS)
_DELAYS = ((0.02, 0.05), (0.2, 0.3), (0.8, 0.4))
# Connections are made again, after growing pauses.
_RETURN_SECONDS = 1.0


def _link(random: Random, **how: object) -> Fault:
    # Each sort of link in turn, or there would be few faults for those of the database.
    name = random.choice(list(random.choice((_TO_SERVERS, _TO_DATABASE, _OF_APPLICATIONS, _TO_BANK))))
    return Fault(name, random.uniform(*_SECONDS), _ALL[name], how)


def _slow_link(random: Random) -> Fault:
    seconds, jitter = random.choice(_DELAYS)
    return _link(random, seconds=seconds, jitter=jitter)


def _one_way(random: Random) -> Fault:
    return _link(random, way=random.choice((Way.REQUESTS, Way.ANSWERS)).name)


def _cut_link(random: Random) -> Fault:
    return _link(random, times=random.randint(1, 4))


async def _spoil(begin: Callable[[Link, Fault], Condition], world: World, fault: Fault) -> None:
    with world.recorded(fault.kind, fault.target, **fault.how):
        with begin(world.links[fault.target], fault):
            await asyncio.sleep(fault.seconds)
        # What was delayed is still under way.
        await asyncio.sleep(fault.how.get("seconds", 0.0) + fault.how.get("jitter", 0.0))


async def _cut(world: World, fault: Fault) -> None:
    times = fault.how["times"]
    with world.recorded(fault.kind, fault.target, times=times):
        for _ in range(times):
            world.links[fault.target].cut()
            await asyncio.sleep(fault.seconds / times)


def _kind(name: str, draw: Callable[[Random], Fault], begin: Callable[[Link, Fault], Condition]) -> Kind:
    return Kind(name, draw, partial(_spoil, begin), 1, _RETURN_SECONDS)


KINDS = [
    Kind("cut", _cut_link, _cut, 1, _RETURN_SECONDS),
    _kind("delay", _slow_link, lambda link, fault: link.delay(fault.how["seconds"], fault.how["jitter"])),
    _kind("silence", _link, lambda link, fault: link.freeze()),
    _kind("one way", _one_way, lambda link, fault: link.blackhole(Way[fault.how["way"]])),
    _kind("lost answers", _link, lambda link, fault: link.lose_answers()),
    _kind("refusal", _link, lambda link, fault: link.refuse()),
]
