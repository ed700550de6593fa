"""Draws a plan of faults from a seed, before anything runs, and carries it out.

The same seed and length give the same plan: kinds, targets, times, durations and details. What the processes
do at those times is not part of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import asyncpg

from faults.cast import APPLICATIONS, REPLICAS, WORKERS
from faults.cluster import AWAY
from faults.kinds import KINDS, SPELLS
from faults.kinds.fault import ALL_WORK, Fault, Kind

if TYPE_CHECKING:
    from faults.world import World

# Faults come in stretches. At the end of each all are healed, and work goes on without faults for a while.
STRETCH_SECONDS = 15.0
CALM_SECONDS = 2.5
# Half of a run that is long enough are spells: one condition that lasts, and nothing else. There it shows
# whether work moves.
SPELL_SECONDS, SHORTEST_SPELL_SECONDS = 60.0, 30.0
# From one fault to the next, on average. They overlap, as most of them last longer.
_PAUSE_SECONDS = 0.9
# At most this many of each have a fault at a time; the others work on.
MOST_STRUCK = {REPLICAS: len(REPLICAS) - 1, WORKERS: 4, APPLICATIONS: 1}
# Between two faults that stop all work.
BREATHER_SECONDS = 1.5
# Kinds are dealt from a deck, so that each occurs: the first of these cards that is allowed at the moment.
_CARDS_LOOKED_AT = 12


def draw_plan(seed: int, seconds: float, without: Collection[str] = ()) -> list[Fault]:
    """Draw the faults of a run of this length, in their order, without the kinds to leave out."""
    random = Random(f"{seed} plan")
    cards = [kind for kind in KINDS if kind.name not in without for _ in range(kind.cards)]
    deck: list[Kind] = []
    plan: list[Fault] = []
    spells: list[Kind] = []
    for begin, end, is_spell in stretches(seconds):
        at = begin
        if is_spell:
            if not spells:
                known = [kind for kind in SPELLS if kind.name not in without]
                spells = random.sample(known, len(known))
            plan += [replace(_draw(kind, random, at), seconds=end - at) for kind in spells[:1]]
            del spells[:1]
            continue
        of_this_stretch: list[Fault] = []  # those before are healed
        while (at := at + random.expovariate(1 / _PAUSE_SECONDS)) < end:
            if len(deck) < _CARDS_LOOKED_AT:
                deck += random.sample(cards, len(cards))
            for place, kind in enumerate(deck[:_CARDS_LOOKED_AT]):
                fault = _draw(kind, random, at)
                if fault.over_at <= end and leaves_enough(fault, of_this_stretch):
                    of_this_stretch.append(fault)
                    del deck[place]
                    break
        plan += of_this_stretch
    return plan


def stretches(seconds: float) -> Iterator[tuple[float, float, bool]]:
    """The begin and end of each stretch, and whether it is a spell; a calm span follows each."""
    spell = min(SPELL_SECONDS, seconds / 2)
    begin = 0.0
    while begin + CALM_SECONDS < seconds:
        is_spell = spell >= SHORTEST_SPELL_SECONDS and begin % (2 * spell) >= spell
        length = spell if is_spell else STRETCH_SECONDS
        yield begin, min(begin + length, seconds) - CALM_SECONDS, is_spell
        begin += length


def leaves_enough(fault: Fault, others: Sequence[Fault]) -> bool:
    """Whether enough processes stay without a fault, and no target has two faults at once."""
    near = [other for other in others if _overlap(fault, other, 0.0)]
    if any(other.targets & fault.targets for other in near):
        return False
    if fault.impairs == ALL_WORK:
        return not any(
            other.impairs == ALL_WORK and _overlap(fault, other, BREATHER_SECONDS) for other in others
        )
    impaired = fault.impairs.union(*(other.impairs for other in near))
    return all(len(impaired & set(names)) <= most for names, most in MOST_STRUCK.items())


def _draw(kind: Kind, random: Random, at: float) -> Fault:
    return replace(kind.draw(random), kind=kind.name, at=at, aftermath_seconds=kind.aftermath_seconds)


def _overlap(one: Fault, other: Fault, apart_seconds: float) -> bool:
    return one.at < other.over_at + apart_seconds and other.at < one.over_at + apart_seconds


async def carry_out(world: World, plan: Sequence[Fault]) -> None:
    """Inject each fault at its time. Returns when all are healed."""
    # A stop waits for calls to be answered, and on a busy machine a start is slow: a fault may last longer
    # than planned. Then the next one of that target waits.
    turns = {target: asyncio.Lock() for fault in plan for target in fault.targets}
    inflict = {kind.name: kind.inflict for kind in KINDS}
    now = asyncio.get_running_loop().time
    began = now()

    async def take_turn(fault: Fault) -> None:
        async with AsyncExitStack() as stack:
            for target in sorted(fault.targets):
                await stack.enter_async_context(turns[target])
            try:
                await inflict[fault.kind](world, fault)
            except asyncpg.SyntaxOrAccessError as error:
                # The statement of the fault does not fit the schema: no such fault would ever be injected.
                world.ground.failures.append(f"{fault.kind} of {fault.target} cannot be injected: {error}")
            except AWAY as error:
                # Postgres still recovers from the fault before: this one is skipped.
                world.history.write("note", text=f"{fault.kind} of {fault.target} was skipped: {error!r}")

    async with asyncio.TaskGroup() as faults:
        for fault in plan:
            await asyncio.sleep(began + fault.at - now())
            faults.create_task(take_turn(fault), name=str(fault))
