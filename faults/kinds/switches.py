"""An operator pauses dispatch, of a topic or of everything, and resumes it later."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from faults.kinds.fault import ALL_WORK, Fault, Kind
from faults.topics import BUSY

if TYPE_CHECKING:
    from faults.world import World

_EVERYTHING = ""
# Shorter and longer than a pause takes to reach every worker.
_SECONDS = (0.3, 4.5)
_AGAIN_SECONDS = 0.1


def _everything(random: Random) -> Fault:
    return Fault("dispatch", random.uniform(*_SECONDS), ALL_WORK, {"topic": _EVERYTHING})


def _a_topic(random: Random) -> Fault:
    topic = random.choice(BUSY)
    return Fault(f"topic {topic}", random.uniform(*_SECONDS), frozenset(), {"topic": topic})


async def _pause(world: World, fault: Fault) -> None:
    """The operator repeats the call until it is acknowledged, or a bound has passed."""
    topic = fault.how["topic"]
    now = asyncio.get_running_loop().time
    with world.recorded(fault.kind, fault.target):
        end = now() + fault.seconds
        while not await world.operator.pause(topic) and now() < end:  # noqa: ASYNC110
            await asyncio.sleep(_AGAIN_SECONDS)
        await asyncio.sleep(fault.seconds)
        while not await world.operator.resume(topic):  # noqa: ASYNC110
            await asyncio.sleep(_AGAIN_SECONDS)


KINDS = [
    Kind("pause", _everything, _pause),
    Kind("pause", _a_topic, _pause),
]
