"""A run: start everything, inject faults, heal everything, check the history and the audit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from faults.audit import Connection
from faults.cast import Pace, WorkerPlace, leases_of
from faults.checker import Verdict, check_run
from faults.history import FREEZE
from faults.keeping import keep
from faults.kinds.fault import Fault
from faults.nemesis import carry_out, draw_plan
from faults.opening import open_the_run
from faults.recoveries import Recovery, recoveries
from faults.regulating import regulate
from faults.settling import settle, stop_all
from faults.stalls import note_late_turns
from faults.watching import watch
from faults.world import World, world_open
from tests.eventually import eventually
from tests.system.stage import Process, Pulsed

if TYPE_CHECKING:
    from faults.world import World

# ---------------------------------------------------------------- last death
# A worker dies while it holds a job, after the faults of the plan.
#
# The workers that a plan kills may be idle at that moment: in a run of half a minute no lease may expire.


_PATIENCE_SECONDS = 90.0
# A report that a worker sent before it was frozen is stored by then.
_REPORTED_SECONDS = 0.5

_HELD = """
SELECT count(*) FROM pulse.jobs
WHERE status = 'RUNNING' AND delivered AND locked_by = $1 AND lease_until > clock_timestamp()
"""
_REAPED = "SELECT count(*) FROM audit.job_changes WHERE outcome = 'lease_expired'"


async def ensure_expired_lease(world: World) -> None:
    """Return once a lease has expired in this run. Kills workers that hold jobs until one has."""
    async with world.cluster.session() as session:

        async def has_reaped() -> bool:
            if await session.fetchval(_REAPED):
                return True
            for place in world.workers.values():
                if await _has_killed_holder(world, place, session):
                    await asyncio.sleep(leases_of(world.ground.seed).total_seconds())
                    break
            return False

        try:
            await eventually(has_reaped, "a lease of a killed worker expires", _PATIENCE_SECONDS)
        except AssertionError as error:
            world.ground.failures.append(f"After the faults, {error}.")


async def _has_killed_holder(world: World, place: WorkerPlace, session: Connection) -> bool:
    """Freeze the worker if it holds a job. Kill it if it holds one then, else let it go on."""
    if not place.is_up or not await session.fetchval(_HELD, place.worker_id):
        return False
    place.freeze()
    with world.recorded(FREEZE, place.present_name):
        await asyncio.sleep(_REPORTED_SECONDS)
    if not await session.fetchval(_HELD, place.worker_id):
        place.thaw()
        return False
    with world.recorded("kill", place.present_name):
        place.kill()
        place.begin()
    return True


# ---------------------------------------------------------------- chaos


# Messages in the log of a worker or an application that indicate a bug.
_SIGNS = ("never retrieved", "unexpected way", "was destroyed but it is pending", "Task exception")


@dataclass(frozen=True)
class Run:
    """The parameters of a run."""

    seed: int
    seconds: float
    jobs_per_second: float
    without: frozenset[str] = frozenset()  # kinds of faults to leave out
    wishes_per_second: float = 10.0
    is_control: bool = False  # handlers do not use ctx.complete, so that I26 must be broken


@dataclass(frozen=True)
class Result:
    """The outcome of a run."""

    run: Run
    plan: list[Fault]
    verdict: Verdict
    recoveries: list[Recovery]
    failures: list[str]  # besides the invariants: processes that exited by themselves or logged a bug

    @property
    def is_good(self) -> bool:
        if self.run.is_control:
            has_found = bool(self.verdict.doubled)
            return has_found and not self.failures and self.broken == {"I26"}
        return self.verdict.is_good and not self.failures

    @property
    def broken(self) -> set[str]:
        return {found.invariant for found in self.verdict.violations}


async def carry_out_run(run: Run, directory: Path, report: Callable[[str], None]) -> Result:
    """Carry out the run. The directory keeps the history and the logs. No process is left at the end."""
    plan = draw_plan(run.seed, run.seconds, run.without)
    pace = Pace(run.jobs_per_second, run.wishes_per_second)
    async with world_open(directory, run.seed, pace, is_control=run.is_control) as world:
        report("five servers migrate an empty database")
        await open_the_run(world)
        background = [
            asyncio.create_task(keep(world.places.values(), world.ground)),
            asyncio.create_task(world.read_clock_on_and_on()),
            asyncio.create_task(watch(world)),
            asyncio.create_task(note_late_turns(world.history)),
        ]
        regulating = asyncio.create_task(regulate(world.operator, Random(f"{run.seed} limits")))
        background.append(regulating)
        try:
            report(f"{run.seconds:g} s with {len(plan)} faults")
            await carry_out(world, plan)
            await ensure_expired_lease(world)
            regulating.cancel()
            report("everything is healed; the remaining jobs run")
            await settle(world)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
        await stop_all(world)
        report("checking the history and the audit")
        async with world.cluster.session() as session:
            verdict = await check_run(world.ground.events, session)
        failures = [*world.ground.failures, *_bugs(world)]
        return Result(run, plan, verdict, recoveries(verdict.evidence, world.ground.attachments), failures)


def _bugs(world: World) -> list[str]:
    """Log messages that no fault explains."""
    lives = [process for place in world.places.values() for process in place.lives]
    return [f"{process.name} logged: {bug}" for process in lives for bug in _bugs_of(process)]


def _bugs_of(process: Process) -> list[str]:
    if isinstance(process, Pulsed):
        return [json.dumps(bug) for bug in process.bugs]
    return [line for line in process.log.splitlines() if any(sign in line for sign in _SIGNS)]
