"""Many fast jobs fill the workers' windows, then handlers become slow, then a second fault follows.

The fast ones come first and the slow ones last, so that workers ask for many and then hold more than they can
start. Then their topic or everything is paused; or all are canceled through one server and retried; or a
worker is killed.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from faults.cast import WORKERS
from faults.flooding import draw_flood, is_warm, pour
from faults.kinds.fault import ALL_WORK, Fault, Kind
from faults.kinds.lives import draw_life
from faults.topics import FLOOD

if TYPE_CHECKING:
    from faults.world import World

_SECONDS = (3.0, 6.0)
_BULK_SECONDS, _ROUNDS = (1.5, 3.0), 3
_EVERYTHING = ""
_AGAIN_SECONDS = 0.1
_GONE_SECONDS = 1.0
_RETURN_SECONDS = 2.5


def _paused(topic: str, random: Random) -> Fault:
    impairs = ALL_WORK if topic == _EVERYTHING else frozenset[str]()
    target = "dispatch" if topic == _EVERYTHING else f"topic {topic}"
    how = {"flood": draw_flood(random), "topic": topic}
    return Fault(target, random.uniform(*_SECONDS), impairs, how, excludes=frozenset({FLOOD}))


def _canceled(random: Random) -> Fault:
    how = {
        "flood": draw_flood(random),
        "wait": random.choice((0.0, 0.0, 0.4)),
        "between": random.uniform(0.1, 0.6),
        "forget": random.random() < 0.5,
    }
    return Fault(FLOOD, random.uniform(*_BULK_SECONDS), frozenset(), how)


def _struck(random: Random) -> Fault:
    target = random.choice(WORKERS)
    how = {"flood": draw_flood(random), "next": draw_life(random, target)}
    excludes = frozenset({FLOOD})
    return Fault(target, random.uniform(*_SECONDS), frozenset({target}), how, excludes=excludes)


async def _flood(world: World, fault: Fault) -> None:
    await pour(world, fault.how["flood"])
    await is_warm(world, fault.how["flood"])


async def _pause(world: World, fault: Fault) -> None:
    topic, operator = fault.how["topic"], world.operator
    with world.recorded(fault.kind, fault.target):
        await _flood(world, fault)
        end = asyncio.get_running_loop().time() + fault.seconds
        while not await operator.pause(topic) and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
            await asyncio.sleep(_AGAIN_SECONDS)
        await asyncio.sleep(fault.seconds)
        while not await operator.resume(topic):  # noqa: ASYNC110
            await asyncio.sleep(_AGAIN_SECONDS)


async def _cancel(world: World, fault: Fault) -> None:
    """Cancel them all and retry them: another worker may run what the first one still holds."""
    with world.recorded(fault.kind, fault.target):
        await _flood(world, fault)
        await world.operator.prioritize_all(FLOOD, 1)
        for _ in range(_ROUNDS):
            await world.operator.cancel_all(FLOOD)
            await asyncio.sleep(fault.how["wait"])
            for status in ("CANCELED", "DEAD_LETTERED"):
                await world.operator.redrive_all(FLOOD, status)
            await asyncio.sleep(fault.how["between"])
        if fault.how["forget"]:
            await world.operator.delete_all(FLOOD, "COMPLETED")


async def _strike(world: World, fault: Fault) -> None:
    place = world.places[fault.target]
    with world.recorded("flood", FLOOD):
        await _flood(world, fault)
    with world.recorded(fault.kind, place.present_name):
        place.kill()
        await asyncio.sleep(_GONE_SECONDS)
        place.begin(fault.how["next"])


KINDS = [
    Kind("warm pause", partial(_paused, FLOOD), _pause, 2, _RETURN_SECONDS),
    Kind("warm pause", partial(_paused, _EVERYTHING), _pause, 1, _RETURN_SECONDS),
    Kind("bulk", _canceled, _cancel, 3, _RETURN_SECONDS),
    Kind("warm kill", _struck, _strike, 2, _RETURN_SECONDS),
]
