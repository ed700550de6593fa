"""The database answers late: every statement takes from half a second to longer than a lease."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

from faults.cast import REPLICAS, leases_of
from faults.disturbances import SLOW
from faults.kinds.database import POSTGRES
from faults.kinds.fault import ALL_WORK, Fault, Kind
from pulse_server.base import tuning
from pulse_server.jobs.reports import longest_confirmation

if TYPE_CHECKING:
    from faults.world import World

_STATEMENT_SECONDS = (0.6, 0.6, 1.2, 2.0, 3.0, 4.0)
_SECONDS = (3.0, 8.0)
_RETURN_SECONDS = 2.0


def _slow(random: Random) -> Fault:
    how = {"seconds": random.choice(_STATEMENT_SECONDS)}
    return Fault(POSTGRES, random.uniform(*_SECONDS), ALL_WORK, how)


def _may_move(seconds: float, seed: int) -> bool:
    """Whether jobs start beside a database that is that slow.

    A confirmation must be answered while it is good. A statement that a connection sends for the first time
    takes two round trips, and must not time out.
    """
    longest = min(longest_confirmation(leases_of(seed)), tuning.STATEMENT_TIMEOUT / 2)
    return timedelta(seconds=seconds) < longest


async def _answer_slowly(world: World, fault: Fault) -> None:
    """Half of the time passes on the way to the database, half of it on the way back."""
    seconds = fault.how["seconds"]
    too_slow = not _may_move(seconds, world.ground.seed)
    with world.recorded(fault.kind, fault.target, seconds=seconds, too_slow=too_slow):
        with ExitStack() as stack:
            for name in REPLICAS:
                stack.enter_context(world.links[f"{name}~postgres"].delay(seconds / 2))
            await asyncio.sleep(fault.seconds)
        await asyncio.sleep(seconds)  # what was delayed is still under way


KINDS = [Kind(SLOW, _slow, _answer_slowly, 1, _RETURN_SECONDS)]
SPELLS = KINDS
