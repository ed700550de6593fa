"""What the demo has shown, in numbers that are read back from the server."""

import asyncio
import contextlib

from examples.demo.facts import NotAsPromised, Tally, take_tally
from examples.demo.scene import Scene

# What is under way when the demo ends may still finish; a job that waits for its next attempt may not.
_SETTLE_SECONDS = 1.5


async def show(scene: Scene) -> None:
    """Print the summary. Raises NotAsPromised if the server lost a job."""
    tally = await _settled_tally(scene)
    scene.narrator.title("Summary", "Counted by reading every job of the story back from the server.")
    scene.narrator.table(
        [
            ("submitted", tally.submitted, ""),
            ("completed", tally.completed, ""),
            ("retried", tally.retried, "completed too, but not at the first attempt"),
            ("recovered", tally.recovered, "of these, after their worker was killed"),
            ("dead-lettered", tally.dead_lettered, "given up after the last attempt, kept with the error"),
            ("unfinished", tally.unfinished, "still under way when the demo ended"),
        ]
    )
    if tally.missing:
        raise NotAsPromised(
            f"{tally.missing} of the submitted jobs are not there any more, unless you deleted them."
        )


async def _settled_tally(scene: Scene) -> Tally:
    tally = await take_tally(scene.client, scene.submitted)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SETTLE_SECONDS):
            while tally.unfinished:
                await asyncio.sleep(0.1)
                tally = await take_tally(scene.client, scene.submitted)
    return tally
