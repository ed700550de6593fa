"""Acts as a service manager: restarts a process that exited without being asked to.

A failpoint kills some of them, and stops others for a while. For any other process to exit by itself is a
failure, except for a server that cannot reach the database when it starts. One that Postgres asks to wait has
to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from random import Random

from faults.cast import Replica
from faults.history import FREEZE
from faults.places import Ground, Life, Place

_LOOK_SECONDS = 0.05
_RESTART_SECONDS = 0.3
_STOPPED_SECONDS = (0.3, 4.0)
# How Postgres answers while it starts, recovers or stops, which it does for seconds in a run.
_ASKED_TO_WAIT = "the database system is"


async def keep(places: Iterable[Place], ground: Ground) -> None:
    """Watch the places until canceled."""
    random = Random(f"{ground.seed} keeping")
    async with asyncio.TaskGroup() as tasks:
        while True:
            for place in places:
                if place.has_ended_itself:
                    tasks.create_task(_start_again(place, ground))
                elif place.has_stopped_itself:
                    tasks.create_task(_let_go_on(place, ground, random.uniform(*_STOPPED_SECONDS)))
            await asyncio.sleep(_LOOK_SECONDS)


async def _start_again(place: Place, ground: Ground) -> None:
    process = place.process
    assert process is not None
    place.is_wanted = False  # no other task may restart it meanwhile
    life, may_exit = place.life, _may_exit(place)
    code = await process.ended()
    place.bury()
    ground.history.write("note", text=f"{process.name} ended by itself with {code}")
    if not life.failpoints and not may_exit:
        ground.failures.append(f"{process.name} ended by itself with {code}.")
    await asyncio.sleep(_RESTART_SECONDS)
    if place.process is None:
        place.begin(_unarmed(life))


async def _let_go_on(place: Place, ground: Ground, seconds: float) -> None:
    process = place.process
    assert process is not None
    place.is_frozen = True
    ground.history.write("fault", kind=FREEZE, target=process.name, by="failpoint")
    await asyncio.sleep(seconds)
    ground.history.write("healed", kind=FREEZE, target=process.name)
    if place.process is process:
        place.thaw()


def _may_exit(place: Place) -> bool:
    """Whether it is a server that never reached the database."""
    has_to_wait = place.process is not None and _ASKED_TO_WAIT in place.process.log
    return isinstance(place, Replica) and not place.was_up and not has_to_wait


def _unarmed(life: Life) -> Life:
    return replace(life, failpoints="")
