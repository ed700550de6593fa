"""I6, I14 and I15: the checker finds skipped and doubled occurrences, and second jobs of a key."""

from __future__ import annotations

from typing import Any

import pytest

from faults.changes import ScheduleChange
from faults.checker import check
from faults.rules import occurrences, overlaps, unique_keys
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.runs import STEP, MadeUpRun
from faults.tests.made_up.schedules import SECOND, MadeUpSchedule
from faults.tests.made_up.verdicts import broken

MINUTE = 60 * SECOND


# ---------------------------------------------------------------- where nothing is wrong


@pytest.mark.parametrize("catch_up", ["one", "skip", "all"])
def test_each_occurrence_fires_in_its_turn(run: MadeUpRun, catch_up: str) -> None:
    schedule, other = MadeUpSchedule(run, 2, catch_up), MadeUpSchedule(run, 3, catch_up)
    for _ in range(3):
        schedule.fire()
        other.fire()
    schedule.delete()
    run.write("run", "settled")
    assert broken(run) == set()


def test_missed_occurrences_are_fired_as_one(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run, 1, "one")
    schedule.fire(late=10 * SECOND)
    schedule.fire()
    assert broken(run) == set()


def test_missed_occurrences_are_passed_over_if_the_schedule_says_so(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run, 1, "skip")
    late = 2 * MINUTE
    schedule.step(schedule.following(late), late=late, is_fired=False)
    schedule.fire()
    assert broken(run) == set()


def test_missed_occurrences_are_replayed_one_by_one(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run, 1, "all")
    for late in (5, 4, 3, 2, 1):
        schedule.fire(late=late * SECOND)
    assert broken(run) == set()


def test_no_more_than_a_hundred_are_replayed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run, 1, "all")
    assert schedule.cursor is not None
    job = schedule.step(schedule.cursor + 51 * SECOND, late=150 * SECOND + STEP)
    assert job is not None
    job.run("worker-1")
    assert broken(run) == set()


def test_edit_and_resume_may_move_the_cursor_anywhere(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    schedule.fire()
    assert schedule.cursor is not None
    schedule.move(schedule.cursor + 7 * SECOND + 1, is_edit=True)
    schedule.fire()
    assert broken(run) == set()


def test_job_that_is_fired_by_hand_has_no_occurrence(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    job = schedule.insert(run.at)
    run.send("schedule_fire", schedule_id=schedule.id, job_id=job.id)
    job.run("worker-1")
    assert broken(run) == set()


def test_schedule_that_fires_once_goes_with_its_fire(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    at = schedule.cursor
    job = schedule.step(None)
    assert job is not None
    job.run("worker-1")
    run.schedules[:] = [_once(change, at) for change in run.schedules]
    assert broken(run) == set()


def _once(change: ScheduleChange, at: int | None) -> ScheduleChange:
    return change._replace(kind="once", run_at=at, interval_ms=None)


def test_cron_follows_its_timetable(run: MadeUpRun) -> None:
    """Created within a minute, it fires at the next full ones."""
    schedule = MadeUpSchedule(run)
    full = run.at - run.at % MINUTE + MINUTE
    schedule.move(full, is_edit=True)
    for _ in range(2):
        assert schedule.cursor is not None
        job = schedule.step(schedule.cursor + MINUTE)
        assert job is not None
        job.run("worker-1")
    run.schedules[:] = [
        change._replace(kind="cron", cron_expr="* * * * *", interval_ms=None) for change in run.schedules
    ]
    assert broken(run) == set()


# ---------------------------------------------------------------- what is noticed


def test_occurrence_that_made_no_job_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    schedule.fire()
    schedule.step(schedule.following(), is_fired=False)
    assert broken(run) == {("I6", occurrences.FIRED)}
    assert len(check(run.evidence()).lost) == 1


def test_occurrence_that_is_passed_over_too_early_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run, 1, "skip")
    late = MINUTE // 2
    schedule.step(schedule.following(late), late=late, is_fired=False)
    assert broken(run) == {("I6", occurrences.FIRED)}


@pytest.mark.parametrize("catch_up", ["one", "skip", "all"])
def test_occurrence_that_the_cursor_jumps_over_is_noticed(run: MadeUpRun, catch_up: str) -> None:
    schedule = MadeUpSchedule(run, 1, catch_up)
    job = schedule.step(schedule.following() + SECOND)
    assert job is not None
    job.run("worker-1")
    assert broken(run) == {("I6", occurrences.NONE_SKIPPED)}


def test_missed_occurrence_that_is_not_replayed_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run, 1, "all")
    job = schedule.step(schedule.following() + SECOND, late=5 * SECOND)
    assert job is not None
    job.run("worker-1")
    assert broken(run) == {("I6", occurrences.NONE_SKIPPED)}


@pytest.mark.parametrize("off", [1, -1, SECOND // 2, -2 * SECOND])
def test_cursor_that_leaves_its_timetable_is_noticed(run: MadeUpRun, off: int) -> None:
    schedule = MadeUpSchedule(run)
    job = schedule.step(schedule.following() + off)
    assert job is not None
    job.run("worker-1")
    assert broken(run) == {("I6", occurrences.NONE_SKIPPED)}


def test_occurrence_that_fires_twice_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    schedule.fire().delete().insert(schedule_id=schedule.id).run("worker-1")
    assert broken(run) == {("I6", occurrences.FIRED_ONCE)}


def test_job_beside_the_cursor_is_noticed(run: MadeUpRun) -> None:
    """It has the id of an occurrence that the cursor never reached."""
    schedule = MadeUpSchedule(run)
    schedule.insert(run.at).run("worker-1")
    assert broken(run) == {("I6", occurrences.OF_AN_OCCURRENCE)}


def test_job_that_is_not_made_with_the_step_of_the_cursor_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    schedule.fire()
    run.schedules[-1] = run.schedules[-1]._replace(txid=99_999)
    assert broken(run) == {("I6", occurrences.OF_AN_OCCURRENCE)}


def test_fire_before_its_time_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    schedule.fire(late=-SECOND // 2)
    assert broken(run) == {("I6", occurrences.NOT_EARLY)}


def test_fire_of_a_paused_schedule_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    schedule.pause()
    schedule.fire()
    assert broken(run) == {("I6", occurrences.NOT_WHILE_PAUSED)}


def test_step_missing_from_the_audit_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    for _ in range(3):
        schedule.fire()
    del run.schedules[2]
    assert ("I6", occurrences.UNBROKEN) in broken(run)


def test_schedule_that_vanishes_without_a_delete_is_noticed(run: MadeUpRun) -> None:
    schedule = MadeUpSchedule(run)
    schedule.fire()
    schedule.move(None)
    assert broken(run) == {("I6", occurrences.DELETED_BY_REQUEST)}


@pytest.mark.parametrize("is_paused", [True, False])
def test_schedule_that_stops_firing_is_noticed_unless_it_is_paused(run: MadeUpRun, is_paused: bool) -> None:
    schedule = MadeUpSchedule(run)
    schedule.fire()
    if is_paused:
        schedule.pause()
    run.wait(2 * MINUTE)
    run.write("run", "settled")
    assert broken(run) == (set() if is_paused else {("I6", occurrences.GOES_ON)})


# ---------------------------------------------------------------- I14 and I15


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
