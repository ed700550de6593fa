"""When a timetable fires, and what the scheduler does about one that is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_server.base.bounds import LAST_MOMENT
from pulse_server.base.errors import InvalidArgument
from pulse_server.schedules.rules import (
    MISSED_AFTER,
    MOST_REPLAYED,
    CatchUp,
    Cron,
    Every,
    Fire,
    Once,
    Schedule,
    Timetable,
    Work,
    check_timetable,
    fire_id,
    first_run,
    next_run,
    plan,
    upcoming,
)
from tests.rows import each_row

ID = "0190f3a2-7b1c-7def-8123-456789abcdef"
CURSOR = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MINUTELY = [Every(MINUTE), Cron("* * * * *")]
RECURRING = [Every(HOUR), Cron("0 * * * *")]

moments = st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))
intervals = st.timedeltas(SECOND, timedelta(days=400)).map(lambda span: timedelta(seconds=int(span / SECOND)))


def a_schedule(timetable: Timetable, catch_up: CatchUp = CatchUp.ONE, cursor: datetime = CURSOR) -> Schedule:
    return Schedule(ID, None, timetable, Work("mail", b"", 0, 5), catch_up, False, cursor)


def replay(timetable: Timetable, now: datetime, **changes: Any) -> list[Fire]:
    """What a scheduler that finds the schedule due at `now` does until nothing is due any more."""
    schedule, fires = a_schedule(timetable, **changes), []
    while not fires or (fires[-1].next_run_at and fires[-1].next_run_at <= now):
        fires.append(plan(schedule, now))
        if fires[-1].next_run_at:
            schedule = a_schedule(timetable, schedule.catch_up, fires[-1].next_run_at)
    return fires


# --- the first, the next, the following


def test_once_fires_first_at_its_moment_even_if_that_has_passed() -> None:
    assert first_run(Once(CURSOR), CURSOR - HOUR) == CURSOR
    assert first_run(Once(CURSOR), CURSOR + HOUR) == CURSOR


def test_interval_fires_first_after_one_interval() -> None:
    assert first_run(Every(HOUR), CURSOR) == CURSOR + HOUR


def test_cron_fires_first_at_the_next_match_and_not_at_the_one_that_is_now() -> None:
    assert first_run(Cron("0 9 * * *"), CURSOR - SECOND) == CURSOR
    assert first_run(Cron("0 9 * * *"), CURSOR) == CURSOR + timedelta(days=1)


def test_cron_is_read_in_its_time_zone() -> None:
    paris = Cron("0 9 * * *", "Europe/Paris")

    assert first_run(paris, datetime(2026, 1, 5, tzinfo=UTC)) == datetime(2026, 1, 5, 8, tzinfo=UTC)
    assert first_run(paris, datetime(2026, 7, 5, tzinfo=UTC)) == datetime(2026, 7, 5, 7, tzinfo=UTC)


def test_once_has_no_next_run() -> None:
    assert next_run(Once(CURSOR), CURSOR, CURSOR + HOUR) is None


@each_row("timetable", RECURRING)
def test_upcoming_begins_with_the_cursor(timetable: Timetable) -> None:
    assert upcoming(timetable, CURSOR, 3) == [CURSOR, CURSOR + HOUR, CURSOR + 2 * HOUR]


def test_upcoming_of_once_is_one_however_many_are_asked_for() -> None:
    assert upcoming(Once(CURSOR), CURSOR, 5) == [CURSOR]


@each_row("timetable, count", [(Cron("0 0 29 2 */7"), 6), (Every(timedelta(days=3650)), 17)])
def test_upcoming_ends_at_the_last_moment(timetable: Timetable, count: int) -> None:
    """A leap day that is a Sunday comes every 28 years. A hundred of them would be a second of computing."""
    found = upcoming(timetable, first_run(timetable, CURSOR), 100)

    assert len(found) == count
    assert LAST_MOMENT - timedelta(days=40 * 366) < found[-1] <= LAST_MOMENT


@given(interval=intervals, cursor=moments, delay=st.timedeltas(timedelta(0), timedelta(days=2000)))
def test_interval_keeps_its_phase_after_any_delay(
    interval: timedelta, cursor: datetime, delay: timedelta
) -> None:
    following = next_run(Every(interval), cursor, cursor + delay)

    assert following is not None
    assert (following - cursor) % interval == timedelta(0)
    assert cursor + delay < following <= cursor + delay + interval


@settings(max_examples=200)
@given(
    timetable=st.sampled_from([*MINUTELY, *RECURRING, Cron("30 2 * * *", "Europe/Paris"), Cron("@monthly")]),
    cursor=moments.map(lambda moment: moment.replace(microsecond=0)),
    delay=st.timedeltas(timedelta(0), timedelta(days=90)),
    catch_up=st.sampled_from(CatchUp),
)
def test_cursor_moves_forward_whatever_the_policy(
    timetable: Timetable, cursor: datetime, delay: timedelta, catch_up: CatchUp
) -> None:
    fire = plan(a_schedule(timetable, catch_up, cursor), cursor + delay)

    assert fire.occurrence == cursor
    assert fire.next_run_at is not None
    assert fire.next_run_at > cursor
    if catch_up is not CatchUp.ALL:
        assert fire.next_run_at > cursor + delay


# --- what is due


@each_row("catch_up", CatchUp)
@each_row("timetable", RECURRING)
def test_punctual_occurrence_fires_under_every_policy(timetable: Timetable, catch_up: CatchUp) -> None:
    fire = plan(a_schedule(timetable, catch_up), CURSOR + SECOND)

    assert fire == Fire(ID, CURSOR, CURSOR + HOUR, fire_id(ID, CURSOR))


@each_row("catch_up", CatchUp)
@each_row("delay", [timedelta(0), timedelta(days=365)])
def test_once_fires_under_every_policy_and_is_over(catch_up: CatchUp, delay: timedelta) -> None:
    """To skip it would mean that it never runs."""
    fire = plan(a_schedule(Once(CURSOR), catch_up), CURSOR + delay)

    assert fire == Fire(ID, CURSOR, None, fire_id(ID, CURSOR))


@each_row("timetable", MINUTELY)
def test_policy_one_fires_once_for_all_that_was_missed_and_goes_on_from_now(timetable: Timetable) -> None:
    assert replay(timetable, CURSOR + HOUR + SECOND) == [
        Fire(ID, CURSOR, CURSOR + HOUR + MINUTE, fire_id(ID, CURSOR))
    ]


@each_row("timetable", MINUTELY)
def test_policy_skip_fires_nothing_of_what_was_missed(timetable: Timetable) -> None:
    assert replay(timetable, CURSOR + HOUR + SECOND, catch_up=CatchUp.SKIP) == [
        Fire(ID, CURSOR, CURSOR + HOUR + MINUTE, None)
    ]


@each_row("late, fires", [(MISSED_AFTER, True), (MISSED_AFTER + SECOND, False)])
def test_policy_skip_forgives_a_delay_of_its_bound(late: timedelta, fires: bool) -> None:
    fire = plan(a_schedule(Every(HOUR), CatchUp.SKIP), CURSOR + late)

    assert (fire.job_id is not None) is fires
    assert fire.next_run_at == CURSOR + HOUR


@each_row("timetable", MINUTELY)
def test_policy_all_fires_each_that_was_missed_in_order(timetable: Timetable) -> None:
    fires = replay(timetable, CURSOR + HOUR + SECOND, catch_up=CatchUp.ALL)

    assert [fire.occurrence for fire in fires] == [CURSOR + number * MINUTE for number in range(61)]
    assert all(fire.job_id == fire_id(ID, fire.occurrence) for fire in fires)
    assert fires[-1].next_run_at == CURSOR + HOUR + MINUTE


@each_row("timetable", MINUTELY)
def test_policy_all_passes_over_what_lies_beyond_the_bound(timetable: Timetable) -> None:
    now = CURSOR + timedelta(days=7) + SECOND
    fires = replay(timetable, now, catch_up=CatchUp.ALL)

    newest = now - SECOND
    recent = [newest - number * MINUTE for number in reversed(range(MOST_REPLAYED))]
    assert [fire.occurrence for fire in fires] == [CURSOR, *recent]
    assert fires[-1].next_run_at == newest + MINUTE


def test_policy_all_of_a_rare_cron_looks_back_only_as_far_as_it_must() -> None:
    leap_days = Cron("0 0 29 2 *")
    cursor = datetime(2016, 2, 29, tzinfo=UTC)

    fires = replay(leap_days, datetime(2026, 1, 1, tzinfo=UTC), catch_up=CatchUp.ALL, cursor=cursor)

    assert [fire.occurrence.year for fire in fires] == [2016, 2020, 2024]


# --- who an occurrence is


def test_fire_id_is_pinned() -> None:
    """If it changed with a release, the occurrence that is due during the upgrade would fire twice."""
    assert fire_id(ID, CURSOR) == "59dacd5b-cd70-58a4-a678-46d1650e94b9"


@given(moment=moments, hours=st.integers(-12, 14))
def test_fire_id_is_that_of_the_moment_in_any_zone(moment: datetime, hours: int) -> None:
    elsewhere = moment.astimezone(timezone(timedelta(hours=hours)))

    assert fire_id(ID, elsewhere) == fire_id(ID, moment)


@given(st.lists(st.tuples(st.uuids(), moments), unique=True, min_size=2, max_size=20))
def test_fire_ids_of_different_occurrences_differ(occurrences: list[tuple[object, datetime]]) -> None:
    ids = {fire_id(str(schedule_id), moment) for schedule_id, moment in occurrences}

    assert len(ids) == len(occurrences)


def test_every_in_a_cron_is_an_interval_that_keeps_its_phase() -> None:
    every = Cron("@every 90s")
    after = CURSOR + timedelta(minutes=10, seconds=1)

    assert first_run(every, CURSOR) == CURSOR + timedelta(seconds=90)
    assert next_run(every, CURSOR, after) == next_run(Every(timedelta(seconds=90)), CURSOR, after)
    assert len(replay(every, CURSOR + HOUR)) == 1, "an hour of missed occurrences is one fire"
    assert len(replay(every, CURSOR + HOUR, catch_up=CatchUp.ALL)) == 41


# --- what is refused


@each_row(
    "interval",
    [timedelta(0), -SECOND, timedelta(milliseconds=99), timedelta(days=3651), timedelta.max],
)
def test_interval_out_of_bounds_is_refused_by_name(interval: timedelta) -> None:
    with pytest.raises(InvalidArgument, match=r"^every is (shorter|longer) than .*\.$"):
        check_timetable(Every(interval), CURSOR)


@each_row("interval", [timedelta(milliseconds=100), timedelta(days=3650)])
def test_interval_at_its_bounds_is_taken(interval: timedelta) -> None:
    assert check_timetable(Every(interval), CURSOR) == Every(interval)


def test_moment_that_has_passed_is_taken() -> None:
    assert check_timetable(Once(CURSOR), CURSOR + HOUR) == Once(CURSOR)
