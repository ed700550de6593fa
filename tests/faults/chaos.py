"""A run: everything is started, the nemesis has its time, everything is healed, and the books are checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.checker import Verdict, check_run
from tests.faults.faults.fault import Fault
from tests.faults.keeping import keep
from tests.faults.nemesis import carry_out, draw_plan
from tests.faults.opening import open_the_run
from tests.faults.recoveries import Recovery, recoveries
from tests.faults.settling import settle, stop_everybody
from tests.faults.world import World, world_open
from tests.system.stage import Process, Pulsed

# Signs in the log of a worker, or of an application, of something that nobody thought of.
_SIGNS = ("never retrieved", "unexpected way", "was destroyed but it is pending", "Task exception")


@dataclass(frozen=True)
class Run:
    """What is to be done."""

    seed: int
    seconds: float
    jobs_per_second: float
    without: frozenset[str] = frozenset()  # kinds of faults to leave out


@dataclass(frozen=True)
class Result:
    """What came of it."""

    run: Run
    plan: list[Fault]
    verdict: Verdict
    recoveries: list[Recovery]
    failures: list[str]  # that are no matter of the books: who ended by itself, or logged a bug

    @property
    def is_good(self) -> bool:
        return self.verdict.is_good and not self.failures


async def carry_out_run(run: Run, directory: Path, tell: Callable[[str], None]) -> Result:
    """Do it in this directory, which keeps all that was written down. Nothing runs at the end."""
    plan = draw_plan(run.seed, run.seconds, run.without)
    async with world_open(directory, run.seed, run.jobs_per_second) as world:
        tell("five servers migrate an empty database")
        await open_the_run(world)
        background = [
            asyncio.create_task(keep(world.places.values(), world.ground)),
            asyncio.create_task(world.read_clock_on_and_on()),
        ]
        try:
            tell(f"{run.seconds:g} s of trouble: {len(plan)} faults")
            await carry_out(world, plan)
            tell("everything is healed; what is left gets done")
            await settle(world)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        await stop_everybody(world)
        tell("the books are checked")
        async with world.cluster.session() as session:
            verdict = await check_run(world.ground.events, session)
        failures = [*world.ground.failures, *_bugs(world)]
        return Result(run, plan, verdict, recoveries(verdict.evidence, world.ground.attachments), failures)


def _bugs(world: World) -> list[str]:
    """What processes wrote into their logs that no fault explains."""
    lives = [process for place in world.places.values() for process in place.lives]
    return [f"{process.name} logged: {bug}" for process in lives for bug in _bugs_of(process)]


def _bugs_of(process: Process) -> list[str]:
    if isinstance(process, Pulsed):
        return [json.dumps(bug) for bug in process.bugs]
    return [line for line in process.log.splitlines() if any(sign in line for sign in _SIGNS)]
