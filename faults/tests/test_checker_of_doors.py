"""I25: the checker finds submits that an old day stops, and limits of a user who serves nothing."""

from __future__ import annotations

import pytest

from faults.disturbances import OLD_DAY
from faults.rules import strangers, submitting
from faults.spans import SECOND
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.limits import MadeUpLimits
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken

_DAYS = "completed days"


@pytest.fixture
def run() -> MadeUpRun:
    run = MadeUpRun()
    run.write("nemesis", "began", target="pulsed-1")
    return run


def lock_a_day(run: MadeUpRun, how: str, number: int = 30) -> None:
    run.write("nemesis", "fault", kind=OLD_DAY, target=_DAYS, day="2001-02-03")
    run.wait(2 * SECOND)
    jobs = [MadeUpJob(run, f"k-{key}").send() for key in range(number)]
    for job in jobs if how == "done" else []:
        job.insert().answer()
    run.wait(3 * SECOND)
    run.write("nemesis", "healed", kind=OLD_DAY, target=_DAYS)
    for job in jobs:
        if how != "done":
            job.insert().answer(how)
        job.run("worker-1")


def test_submits_that_wait_for_an_old_day_are_noticed(run: MadeUpRun) -> None:
    lock_a_day(run, "unknown")
    assert broken(run) == {("I25", submitting.PASSES_OLD_DAYS)}


def test_submits_that_pass_an_old_day_are_fine(run: MadeUpRun) -> None:
    lock_a_day(run, "done")
    assert broken(run) == set()


def test_few_submits_prove_nothing(run: MadeUpRun) -> None:
    lock_a_day(run, "unknown", number=5)
    assert broken(run) == set()


def test_fault_of_the_database_excuses_submits_that_an_old_day_might_have_stopped(run: MadeUpRun) -> None:
    run.write("nemesis", "fault", kind="halt", target="postgres")
    lock_a_day(run, "unknown")
    run.write("nemesis", "healed", kind="halt", target="postgres")
    assert broken(run) == set()


def test_limits_of_a_user_who_serves_nothing_are_noticed(run: MadeUpRun) -> None:
    MadeUpLimits(run).limit(limit=strangers.LIMIT)
    assert broken(run) == {("I25", strangers.NO_LIMITS_TO_SET)}


def test_hold_of_a_user_who_serves_nothing_is_noticed(run: MadeUpRun) -> None:
    MadeUpLimits(run).hold(strangers.HELD_FOR.total_seconds())
    assert broken(run) == {("I25", strangers.NO_LIMITS_TO_SET)}


def test_hold_that_is_kept_with_the_topic_is_noticed(run: MadeUpRun) -> None:
    MadeUpLimits(run).limit(closed_until="2099-01-01T00:00:00+00:00")
    assert broken(run) == {("I25", strangers.NO_LIMITS_TO_SET)}


def test_limits_and_holds_of_others_are_fine(run: MadeUpRun) -> None:
    made_up = MadeUpLimits(run)
    made_up.limit(limit=5, starts=10, seconds=1)
    made_up.hold(2)
    assert broken(run) == set()
