"""Handlers slower than arrivals: a backlog of no priority that never ends, and urgent jobs that meet it.

A worker of both topics is busy with the backlog. Another one is reserved for the urgent topic, at another
server, and can run a few of its jobs only. So the urgent ones have to reach the first one, too.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import pulse
from faults.cluster import AWAY
from faults.errands import Errand
from faults.flooding import enqueue
from faults.topics import BULK, URGENT

if TYPE_CHECKING:
    from faults.world import World

# More than a worker starts until the next look, whatever its concurrency is.
_BACKLOG, _REFILL = 20, 20
_BULK_SECONDS, _URGENT_SECONDS = (0.4, 0.9), (0.3, 0.6)
_BURST = (20, 40)
_PRIORITIES = (1, 5, 100)
_LOOK_SECONDS, _BETWEEN_SECONDS = 0.3, (2.0, 5.0)
_SOON, _START = timedelta(seconds=0.5), timedelta(seconds=60)
_ATTEMPTS = 20
# The database may have a fault meanwhile.
# How urgent jobs become ready: stored plainly, with a limit for their start, by a promotion, with a key.
_WAYS = ("plain", "start_within", "delay", "unique")


@dataclass(frozen=True)
class Saturation:
    """Its number, from which its details are drawn."""

    number: int

    def __str__(self) -> str:
        return f"{self.number}"


async def saturate(world: World, saturation: Saturation, seconds: float) -> None:
    """Keep the backlog up, and send bursts of urgent jobs into it."""
    random = Random(saturation.number)
    names = (f"{BULK}-{saturation.number}-{number}" for number in count(1))
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(_keep_busy(world, random, names), _send_urgent(world, random, names))


async def _keep_busy(world: World, random: Random, names: Any) -> None:
    waiting = f"SELECT count(*) FROM pulse.jobs WHERE topic = '{BULK}' AND queued AND locked_by IS NULL"
    while True:
        with suppress(*AWAY):
            async with world.cluster.session() as session:
                while True:
                    if await session.fetchval(waiting) < _BACKLOG:
                        errands = [_errand(random, names, _BULK_SECONDS) for _ in range(_REFILL)]
                        await enqueue(world, world.operator.door(), BULK, errands, max_attempts=_ATTEMPTS)
                    await asyncio.sleep(_LOOK_SECONDS)
        await asyncio.sleep(_LOOK_SECONDS)


async def _send_urgent(world: World, random: Random, names: Any) -> None:
    while True:
        await asyncio.sleep(random.uniform(*_BETWEEN_SECONDS))
        errands = [_errand(random, names, _URGENT_SECONDS) for _ in range(random.randint(*_BURST))]
        options: dict[str, Any] = {"priority": random.choice(_PRIORITIES), "max_attempts": _ATTEMPTS}
        door = world.operator.door()
        match random.choice(_WAYS):
            case "start_within":
                options["start_within"] = _START
            case "delay":
                options["delay"] = _SOON
            case "unique":
                options["unique"] = pulse.Unique(by="key")
        await enqueue(world, door, URGENT, errands, **options)


def _errand(random: Random, names: Any, seconds: tuple[float, float]) -> Errand:
    return Errand(next(names), "complete", random.uniform(*seconds))
