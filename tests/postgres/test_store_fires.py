"""One tick after another: what fires, what does not, and what a schedule leaves behind."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from pulse_server.schedules.rules import MOST_REPLAYED, CatchUp, Cron, Every, Fire, Timetable, fire_id, plan
from tests.postgres.planning import HOUR, MINUTE, SECOND, Planning

AT_ONCE = timedelta(0)


async def test_due_schedule_makes_an_ordinary_job_and_moves_on(planning: Planning) -> None:
    schedule = await planning.make(
        overdue=SECOND, topic="report", payload=b"what", priority=7, max_attempts=3, metadata={"a": "ü"}
    )

    await planning.scheduler.tick()

    (job,) = await planning.jobs_of(schedule)
    assert job.id == fire_id(schedule.id, schedule.next_run_at)
    assert (job.topic, job.priority, job.max_attempts, dict(job.metadata)) == ("report", 7, 3, {"a": "ü"})
    assert (job.status, job.ready, job.schedule_id) == ("PENDING", True, schedule.id)
    assert await planning.payload_of(job) == b"what"
    moved = await planning.current(schedule)
    assert moved.next_run_at == schedule.next_run_at + HOUR
    assert moved.last_run_at == schedule.next_run_at
    assert planning.roster.woken == [{"report"}]


async def test_nothing_due_fires_nothing_and_sends_no_wake_up(planning: Planning) -> None:
    await planning.make()

    assert await planning.scheduler.tick() is None
    assert await planning.job_ids() == set()
    assert planning.roster.woken == []


async def test_lists_and_the_scheduler_leave_payloads_in_the_database(planning: Planning) -> None:
    """A thousand schedules of 1 MiB would be a gigabyte in this process."""
    schedule = await planning.make(overdue=SECOND, payload=b"large")

    for read in (await planning.repo.list_schedules(limit=10), await planning.repo.due_schedules(10)):
        assert [(found.id, found.work.payload) for found in read] == [(schedule.id, b"")]
    await planning.scheduler.tick()
    (job,) = await planning.jobs_of(schedule)
    assert await planning.payload_of(job) == b"large"


async def test_second_tick_finds_nothing_left(planning: Planning) -> None:
    await planning.make(overdue=SECOND)

    await planning.scheduler.tick()
    await planning.scheduler.tick()

    assert len(await planning.job_ids()) == 1


async def test_once_is_gone_after_its_fire_and_its_job_keeps_the_lineage(planning: Planning) -> None:
    schedule = await planning.make_once()

    await planning.scheduler.tick()

    assert await planning.repo.get_schedule(schedule.id) is None
    jobs = await planning.jobs_of(schedule)
    assert [(job.id, job.schedule_id) for job in jobs] == [
        (fire_id(schedule.id, schedule.next_run_at), schedule.id)
    ]


async def test_deleted_schedule_leaves_its_jobs(planning: Planning) -> None:
    schedule = await planning.make(overdue=SECOND)
    await planning.scheduler.tick()

    await planning.service.delete(schedule.id)

    assert len(await planning.jobs_of(schedule)) == 1


async def test_stale_step_neither_fires_again_nor_moves_the_cursor_back(planning: Planning) -> None:
    schedule = await planning.make(overdue=3 * HOUR, catch_up=CatchUp.ALL)
    stale = plan(schedule, await planning.now())
    while await planning.due_count():
        await planning.scheduler.tick()
    before, jobs = await planning.current(schedule), await planning.job_ids()

    assert await planning.repo.fire_schedules([stale]) == []
    another_way = Fire(schedule.id, schedule.next_run_at, schedule.next_run_at - HOUR, stale.job_id)
    assert await planning.repo.fire_schedules([another_way]) == []

    assert await planning.current(schedule) == before
    assert await planning.job_ids() == jobs


async def test_stale_step_does_not_bring_back_a_once(planning: Planning) -> None:
    schedule = await planning.make_once()
    stale = plan(schedule, await planning.now())
    await planning.scheduler.tick()

    assert await planning.repo.fire_schedules([stale]) == []
    assert len(await planning.job_ids()) == 1


async def test_cursor_set_back_by_hand_makes_no_second_job_of_an_occurrence(planning: Planning) -> None:
    schedule = await planning.make(overdue=SECOND)
    await planning.scheduler.tick()
    await planning.set_cursor(schedule, schedule.next_run_at)

    await planning.scheduler.tick()

    assert await planning.job_ids() == {fire_id(schedule.id, schedule.next_run_at)}
    assert (await planning.current(schedule)).next_run_at == schedule.next_run_at + HOUR
    first, again = planning.repo.batches
    assert [fired.job_id for fired in first] == [fire_id(schedule.id, schedule.next_run_at)]
    assert [fired.job_id for fired in again] == [None]
    assert planning.roster.woken == [{"mail"}]


async def test_step_that_is_passed_over_leaves_the_last_run_as_it_was(planning: Planning) -> None:
    schedule = await planning.make(overdue=3 * HOUR, catch_up=CatchUp.SKIP)

    await planning.scheduler.tick()

    moved = await planning.current(schedule)
    assert (moved.next_run_at, moved.last_run_at) == (schedule.next_run_at + 4 * HOUR, None)
    assert await planning.job_ids() == set()
    assert planning.roster.woken == []


async def test_missed_occurrences_are_one_fire_and_the_phase_is_kept(planning: Planning) -> None:
    schedule = await planning.make(Every(MINUTE), overdue=HOUR + SECOND)

    assert await planning.scheduler.tick() is None

    assert await planning.job_ids() == {fire_id(schedule.id, schedule.next_run_at)}
    assert (await planning.current(schedule)).next_run_at == schedule.next_run_at + HOUR + MINUTE


async def test_schedule_that_replays_is_ticked_at_once_until_it_has_caught_up(planning: Planning) -> None:
    """One step per interval would never catch up with a schedule whose own interval is as short."""
    schedule = await planning.make(Every(MINUTE), overdue=10 * MINUTE + SECOND, catch_up=CatchUp.ALL)

    pauses = [await planning.scheduler.tick() for _ in range(11)]

    assert pauses == [AT_ONCE] * 10 + [None]
    assert await planning.job_ids() == {
        fire_id(schedule.id, schedule.next_run_at + number * MINUTE) for number in range(11)
    }


async def test_replay_is_bounded(planning: Planning) -> None:
    schedule = await planning.make(Every(MINUTE), overdue=timedelta(days=30) + SECOND, catch_up=CatchUp.ALL)

    while await planning.scheduler.tick() == AT_ONCE:
        pass

    assert len(await planning.job_ids()) == MOST_REPLAYED + 1
    newest = schedule.next_run_at + timedelta(days=30)
    assert (await planning.current(schedule)).last_run_at == newest


async def test_unreadable_schedule_is_logged_and_skipped_and_the_others_fire(
    planning: Planning, caplog: pytest.LogCaptureFixture
) -> None:
    (spoilt,) = await planning.make_unreadable()
    good = await planning.make(overdue=SECOND)

    await planning.scheduler.tick()

    assert await planning.job_ids() == {fire_id(good.id, good.next_run_at)}
    (skipped,) = (record for record in caplog.records if record.getMessage() == "schedule_skipped")
    assert (skipped.levelno, skipped.__dict__["schedule_id"]) == (logging.ERROR, spoilt)


async def test_zone_that_the_database_of_zones_no_longer_has_stops_its_own_schedule_only(
    planning: Planning,
) -> None:
    schedule = await planning.make(Cron("@hourly", "Europe/Paris"), overdue=HOUR)
    await planning.spoil(schedule, Cron("@hourly", "Atlantis/Capital"))
    good = await planning.make(overdue=SECOND)

    await planning.scheduler.tick()

    assert await planning.job_ids() == {fire_id(good.id, good.next_run_at)}
    assert (await planning.current(schedule)).next_run_at == schedule.next_run_at


async def test_more_unreadable_schedules_than_a_batch_do_not_starve_the_others(
    planning: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_server.schedules.service.SCHEDULE_BATCH", 5)
    await planning.make_unreadable(12)
    good = [await planning.make(overdue=SECOND) for _ in range(7)]

    for _ in range(6):
        await planning.scheduler.tick()

    assert await planning.job_ids() == {fire_id(schedule.id, schedule.next_run_at) for schedule in good}
    assert await planning.scheduler.tick() is None, "with nothing but unreadable ones left it must not spin"


@pytest.mark.parametrize("timetable", [Every(timedelta(milliseconds=200)), Cron("@every 200ms")], ids=str)
async def test_quick_interval_is_followed_at_its_own_pace(planning: Planning, timetable: Timetable) -> None:
    schedule = await planning.make(timetable, overdue=timedelta(milliseconds=1))

    pause = await planning.scheduler.tick()

    assert pause is not None
    assert AT_ONCE < pause <= timedelta(milliseconds=200)
    assert (await planning.current(schedule)).next_run_at > schedule.next_run_at


async def test_look_that_comes_a_hair_too_early_is_repeated_once(planning: Planning) -> None:
    schedule = await planning.make(Every(timedelta(milliseconds=900)), overdue=timedelta(milliseconds=1))
    planned = await planning.scheduler.tick()
    await planning.set_cursor(schedule, await planning.now() + HOUR)

    assert await planning.scheduler.tick() == planned
    assert await planning.scheduler.tick() is None, "back to the usual pace"
