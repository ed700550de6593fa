"""Floods of jobs: hundreds that take no time, then slow ones with quick ones in between.

A worker whose slots are all taken holds quick ones that another worker could run at once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pulse
from faults.cluster import AWAY
from faults.errands import Errand
from faults.operating import REFUSALS, in_words
from faults.topics import FLOOD

if TYPE_CHECKING:
    from faults.world import World

_FAST, _SLOW, _BEHIND = (300, 1500), (40, 200), 3
_SLOW_SECONDS = (0.2, 0.6)
_ATTEMPTS = (1, 1, 2, 20)
_BATCH = 500
_TIMEOUT = timedelta(seconds=5)
_LOOK_SECONDS, _PATIENCE_SECONDS = 0.1, 5.0
# The database may have a fault meanwhile.


@dataclass(frozen=True)
class Flood:
    """The number of fast jobs, the number and duration of slow ones, and their max_attempts."""

    number: int
    fast: int
    slow: int
    seconds: float
    max_attempts: int

    def __str__(self) -> str:
        return f"{self.fast}+{self.slow} of {self.seconds:.1f} s, {self.max_attempts} attempts"

    def again(self) -> Flood:
        """The same with jobs of other names."""
        return replace(self, number=self.number + 2**31)

    def errands(self) -> list[Errand]:
        seconds = [0.0] * self.fast + [self.seconds, *[0.0] * _BEHIND] * self.slow
        return [
            Errand(f"flood-{self.number}-{place}", "complete", each) for place, each in enumerate(seconds)
        ]


def draw_flood(random: Random) -> Flood:
    return Flood(
        random.randrange(2**31),
        random.randint(*_FAST),
        random.randint(*_SLOW),
        random.uniform(*_SLOW_SECONDS),
        random.choice(_ATTEMPTS),
    )


async def pour(world: World, flood: Flood) -> None:
    """Enqueue all its jobs through one server."""
    door = world.operator.door()
    everything = flood.errands()
    for begin in range(0, len(everything), _BATCH):
        errands = everything[begin : begin + _BATCH]
        await enqueue(world, door, FLOOD, errands, max_attempts=flood.max_attempts)


async def enqueue(world: World, door: pulse.Pulse, topic: str, errands: list[Errand], **options: Any) -> None:
    """Enqueue jobs that complete in one call, and record it."""
    submits = [
        world.history.operation("submit", key=errand.key, topic=topic, expect="complete")
        for errand in errands
    ]
    try:
        handles = await door.enqueue_many(topic, errands, timeout=_TIMEOUT, **options)
    except pulse.PulseError as error:
        for submit in submits:
            settle = submit.refused if isinstance(error, REFUSALS) else submit.unknown
            settle(in_words(error))
    else:
        for submit, handle in zip(submits, handles, strict=True):
            submit.done(job_id=handle.id)


async def is_warm(world: World, flood: Flood) -> None:
    """Wait until workers have claimed all fast jobs, or a bound has passed."""
    ready = f"SELECT count(*) FROM pulse.jobs WHERE topic = '{FLOOD}' AND queued AND locked_by IS NULL"
    with suppress(*AWAY):
        async with asyncio.timeout(_PATIENCE_SECONDS), world.cluster.session() as session:
            while await session.fetchval(ready) > flood.slow * _BEHIND // 2:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
