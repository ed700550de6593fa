"""The clock of a Postgres that is set while it runs, and how the checker converts its times."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from faults.audit import record_clock
from faults.clock import CLOCK, Clock
from faults.cluster import Cluster
from faults.history import History, read
from faults.rules import ends, transitions
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken

_SECOND_NS, _LONG = 10**9, 5_000_000


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
async def test_clock_of_the_database_is_set_while_it_runs_and_stays_so_after_a_restart(
    tmp_path: Path,
) -> None:
    cluster = Cluster(tmp_path / "cluster")
    (tmp_path / "history").mkdir()
    try:
        await cluster.open()
        with History(tmp_path / "history", "test") as history:
            for seconds in (-3600, 1800):
                history.write("fault", kind=CLOCK, target="postgres", seconds=seconds)
                cluster.clock.step(seconds)
                history.write("healed", kind=CLOCK, target="postgres")
            await cluster.kill_postmaster()
            await cluster.start_again()
            async with cluster.session() as session:
                await record_clock(session, history)
                behind = await session.fetchval("SELECT date_part('epoch', now())")
    finally:
        await cluster.close()
    events = read(tmp_path / "history")
    here = (tmp_path / "history").stat().st_mtime
    assert -1900 < behind - here < -1700
    # Without the steps, the clock is the one of the machine.
    clock = Clock.of(events)
    assert abs(clock.about(clock.earliest(events[-1].t)) - events[-1].t) < _SECOND_NS


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


def set_clock(run: MadeUpRun, seconds: float) -> None:
    run.write("nemesis", "fault", kind=CLOCK, target="postgres", seconds=seconds)
    run.write("nemesis", "healed", kind=CLOCK, target="postgres")


def test_moments_before_and_after_a_step_are_converted_by_the_clock_of_their_time(run: MadeUpRun) -> None:
    before = run.t
    run.wait(_LONG)
    set_clock(run, -2.0)
    run.wait(_LONG)
    after = run.t
    clock = Clock.of(run.events)
    unset = Clock.of(run.events[:1])
    assert (clock.earliest(before), clock.latest(before)) == (unset.earliest(before), unset.latest(before))
    assert clock.earliest(after) == unset.earliest(after) - 2_000_000
    assert clock.about(clock.earliest(after)) == unset.about(unset.earliest(after))


def test_moments_near_a_step_may_be_either(run: MadeUpRun) -> None:
    run.wait(_LONG)
    moments = [run.t]
    set_clock(run, -1.0)
    moments.append(run.t)
    clock = Clock.of(run.events)
    assert all(clock.latest(moment) - clock.earliest(moment) >= 1_000_000 for moment in moments)


@pytest.mark.parametrize(("microseconds", "expected"), [(0, set()), (_LONG, {("I7", transitions.ASKED_FOR)})])
def test_what_happens_near_a_step_is_not_judged(
    run: MadeUpRun, microseconds: int, expected: set[tuple[str, str]]
) -> None:
    job = MadeUpJob(run, expect="any").submit()
    set_clock(run, 0.0)
    run.wait(microseconds)
    job.become(status="CANCELED", ready=False)
    assert broken(run) == expected


def test_lost_job_is_lost_whatever_the_clock_was(run: MadeUpRun) -> None:
    MadeUpJob(run).submit()
    set_clock(run, 0.0)
    assert broken(run) == {("I1", ends.JOBS_END)}


def test_clock_was_set_near_a_moment_or_was_not(run: MadeUpRun) -> None:
    long_before = run.at
    run.wait(20_000_000)
    set_clock(run, 0.5)
    clock = Clock.of(run.events)
    assert not clock.was_set(long_before, 10_000_000)
    assert clock.was_set(run.at, 10_000_000)
