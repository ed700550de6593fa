"""I14 and I15: the checker finds a second job of a key, a swallowed submit, and occurrences that overlap."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.made_up.jobs import MadeUpJob
from tests.faults.made_up.runs import MadeUpRun
from tests.faults.made_up.schedules import SECOND, MadeUpSchedule
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import overlaps, unique_keys


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


def facts(on_conflict: str = "skip", while_: str = "waiting", period: float = 0.0) -> dict[str, Any]:
    return {"key": "shop", "while_": while_, "on_conflict": on_conflict, "period": period}


def submit(run: MadeUpRun, key: str, answer: MadeUpJob, *, duplicate: bool, **unique: Any) -> None:
    """A submit that is answered with this job."""
    op = run.send("submit", key=key, topic=answer.topic, expect="any", unique=facts(**unique))
    run.answer("submit", op, key=key, job_id=answer.id, duplicate=duplicate)


@pytest.mark.parametrize("scope", ["waiting", "live"])
def test_second_job_of_a_key_is_noticed(run: MadeUpRun, scope: str) -> None:
    jobs = [MadeUpJob(run, f"k{number}", unique=f"{scope} shop").submit() for number in range(2)]
    for job in jobs:
        job.run("worker-1")
    assert broken(run) == {("I14", unique_keys.ONE_AT_A_TIME)}


def test_job_may_follow_one_that_has_started_unless_the_key_is_live(run: MadeUpRun) -> None:
    for number, scope in enumerate(("waiting", "live")):
        first = MadeUpJob(run, f"a{number}", unique=f"{scope} shop").submit().claim("worker-1").beat()
        second = MadeUpJob(run, f"b{number}", unique=f"{scope} shop").submit()
        first.execute()
        second.run("worker-1")
        expected = set() if scope == "waiting" else {("I14", unique_keys.ONE_AT_A_TIME)}
        assert broken(run) == expected


def test_started_job_that_swallows_a_submit_is_noticed(run: MadeUpRun) -> None:
    job = MadeUpJob(run, unique="waiting shop").submit()
    submit(run, "again", job, duplicate=True)
    job.claim("worker-1").beat()
    assert broken(run) == {("I1", "a job ends in a terminal state")}
    submit(run, "late", job, duplicate=True)
    job.execute()
    assert broken(run) == {("I14", unique_keys.STARTED_SWALLOWS_NOTHING)}


def test_two_jobs_in_a_period_are_noticed(run: MadeUpRun) -> None:
    for number in range(2):
        job = MadeUpJob(run, f"k{number}", unique="waiting shop").submit().run("worker-1")
        submit(run, f"k{number}", job, duplicate=False, on_conflict="throttle", period=5.0)
    assert broken(run) == {("I14", unique_keys.ONE_IN_A_PERIOD)}


def test_job_after_the_period_passes(run: MadeUpRun) -> None:
    for number in range(2):
        job = MadeUpJob(run, f"k{number}", unique="waiting shop").submit().run("worker-1")
        submit(run, f"k{number}", job, duplicate=False, on_conflict="throttle", period=5.0)
        run.wait(5_000_000)
    assert broken(run) == set()


def test_occurrence_while_a_job_is_unfinished_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run, overlap="skip")
    first = schedule.step(schedule.following())
    schedule.fire()
    assert first is not None
    first.run("worker-1")
    assert broken(run) == {("I15", overlaps.NO_OVERLAP)}


def test_occurrence_that_is_skipped_or_waits_passes(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run, overlap="queue")
    first = schedule.step(schedule.following())
    waits = schedule.cursor
    schedule.step(schedule.following(), is_fired=False)
    assert first is not None
    assert waits is not None
    first.run("worker-1")
    schedule.fire_queued(waits)
    schedule.fire()
    run.wait(SECOND)
    assert broken(run) == set()
