"""A light load, for as long as someone watches."""

import asyncio
import itertools
from collections.abc import Callable

from examples.demo.facts import take_tally
from examples.demo.scene import Scene

_SECONDS_BETWEEN_JOBS = 0.5
_JOBS_BETWEEN_TALLIES = 10


async def keep_up(scene: Scene, is_over: Callable[[], bool]) -> None:
    """Submit a job now and then, and tell how things stand, until it is over."""
    for number in itertools.count(1):
        if is_over():
            return
        # Every tenth fails at first, so that there is something to see.
        if number % _JOBS_BETWEEN_TALLIES == 0:
            await scene.submit("charge-card", {"customer": "ada", "cents": number})
            await _tell_tally(scene)
        else:
            await scene.submit("send-email", {"to": f"reader{number}@example.com", "subject": "News"})
        await asyncio.sleep(_SECONDS_BETWEEN_JOBS)


async def _tell_tally(scene: Scene) -> None:
    tally = await take_tally(scene.client, scene.submitted)
    scene.narrator.tell(
        "server",
        f"{tally.submitted} jobs so far: {tally.completed} done, {tally.unfinished} under way, "
        f"{tally.dead_lettered} in the dead letters",
    )
