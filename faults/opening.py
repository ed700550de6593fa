"""How a run begins: five servers at once on an empty database, some of which die while they migrate it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from faults.audit import install
from faults.bank import install_bank
from faults.cast import REPLICAS, Replica
from faults.cluster import OWNER
from faults.keeping import keep
from faults.kinds.lives import draw_life
from faults.places import PLAIN, Life, Place
from faults.world import World
from tests.eventually import eventually

MIGRATION = "migration"
_PATIENCE_SECONDS = 180.0
_POINTS = ("migration.applying", "migration.recording", "migration.applied")
_MOST_PASSES = 4
# The servers that only migrate use the links of others.
_GUESTS = {"pulsed-4": "pulsed-1~postgres", "pulsed-5": "pulsed-2~postgres"}


async def open_the_run(world: World) -> None:
    """Return once servers, workers and applications are at work, on a database that is audited."""
    random = Random(f"{world.ground.seed} opening")
    await _migrate(world, random)
    async with world.cluster.session(OWNER) as owner:
        await install(owner)
    async with world.cluster.session() as superuser:
        await install_bank(superuser)
    # Each server has its share of the workers.
    for number, (name, worker) in enumerate(world.workers.items()):
        life = draw_life(random, name)
        worker.begin(Life(life.seconds_ahead, replica=REPLICAS[number % len(REPLICAS)], concurrency=4))
    for name, application in world.applications.items():
        application.begin(draw_life(random, name))
    await _all_up([*world.places.values()])


async def _migrate(world: World, random: Random) -> None:
    guests = [Replica(name, world.ground, world.links[link]) for name, link in _GUESTS.items()]
    five: list[Place] = [*guests, *world.replicas.values()]
    unharmed = random.choice(five)
    keeping = asyncio.create_task(keep(five, world.ground))
    try:
        with world.recorded(MIGRATION, "five servers at once"):
            for place in five:
                place.begin(PLAIN if place is unharmed else _mortal(random))
            await _all_up(five)
        for place in five:
            place.disarm()
        await asyncio.gather(*(guest.stop() for guest in guests))
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        for guest in guests:
            guest.kill()  # if the run was interrupted: they are in no list of processes


def _mortal(random: Random) -> Life:
    """A server that is killed in the middle of a migration, if it is the one that runs it."""
    return Life(failpoints=f"{random.choice(_POINTS)}=kill@{random.randint(1, _MOST_PASSES)}")


async def _all_up(places: Sequence[Place]) -> None:
    def are_up() -> bool:
        return all(place.is_up for place in places)

    names = ", ".join(place.name for place in places)
    await eventually(are_up, f"{names} are up", _PATIENCE_SECONDS)
