"""A daily schedule fires once a day through every change of the clocks, in every zone that has one."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_server.schedules.rules import Cron, first_run, next_run
from tests.domain.clock_changes import ClockChange, fire_of_the_day, zones_by_changes
from tests.rows import each_row

DAY = timedelta(days=1)
HALF_HOURS = [time(hour, minute) for hour in range(24) for minute in (0, 30)]


@cache
def every_change() -> list[tuple[tuple[ClockChange, ...], ClockChange]]:
    return [(changes, change) for changes in zones_by_changes() for change in changes]


# Computed for the first test that needs it: other tests of the suite do not wait for it.
CHANGED = st.deferred(lambda: st.sampled_from(every_change()))


def zone_of(changes: tuple[ClockChange, ...]) -> ZoneInfo:
    return ZoneInfo(zones_by_changes()[changes][0])


def daily(changes: tuple[ClockChange, ...], at: time) -> Cron:
    return Cron(f"{at.minute} {at.hour} * * *", zone_of(changes).key)


def days_around(changes: tuple[ClockChange, ...], moment: datetime) -> list[date]:
    middle = moment.astimezone(zone_of(changes)).date()
    return [middle + number * DAY for number in range(-3, 4)]


def test_zones_with_changes_are_many() -> None:
    """Else the tests here would prove little."""
    alike = zones_by_changes()
    assert len(alike) > 20
    assert sum(map(len, alike.values())) > 150


@each_row("at", HALF_HOURS)
def test_daily_schedule_fires_once_for_each_day_whatever_the_clocks_do(at: time) -> None:
    for changes, change in every_change():
        zone, cron = zone_of(changes), daily(changes, at)
        days = days_around(changes, change.moment)
        meant = [fire_of_the_day(zone, changes, day, at) for day in days]
        fires = [first_run(cron, meant[0] - timedelta(seconds=1))]
        while len(fires) < len(days):
            following = next_run(cron, fires[-1], fires[-1])
            assert following is not None
            fires.append(following)

        assert fires == meant, (zone.key, change)
        # Where the clocks jump over midnight, a time of day that they skip is made up for on the next day.
        if not change.skips_to_the_next_day:
            assert [fire.astimezone(zone).date() for fire in fires] == days, (zone.key, change)


@settings(max_examples=400)
@given(
    changed=CHANGED,
    at=st.builds(time, st.integers(0, 23), st.integers(0, 59)),
    seconds=st.integers(-2 * 86_400, 2 * 86_400),
)
def test_next_run_is_the_next_day_that_has_not_had_its_fire(
    changed: tuple[tuple[ClockChange, ...], ClockChange], at: time, seconds: int
) -> None:
    """However late the scheduler looks, also in the hour that the clocks repeat."""
    changes, change = changed
    now = change.moment + timedelta(seconds=seconds)
    meant = [
        fire_of_the_day(zone_of(changes), changes, day, at) for day in days_around(changes, change.moment)
    ]
    cursor = max(fire for fire in meant if fire <= now)

    assert next_run(daily(changes, at), cursor, now) == min(fire for fire in meant if fire > now)
    assert first_run(daily(changes, at), now) == min(fire for fire in meant if fire > now)


@settings(max_examples=400)
@given(
    changed=CHANGED,
    expression=st.sampled_from(
        ["* * * * *", "*/15 * * * *", "0 * * * *", "30 */2 * * *", "* 2 * * *", "15,45 0-3 * * *", "@hourly"]
    ),
    seconds=st.integers(-10_800, 10_800),
)
def test_next_run_lies_ahead_and_the_cursor_never_stands_still(
    changed: tuple[tuple[ClockChange, ...], ClockChange], expression: str, seconds: int
) -> None:
    changes, change = changed
    cron = Cron(expression, zone_of(changes).key)
    fires = [change.moment + timedelta(seconds=seconds)]
    while len(fires) < 8:
        following = next_run(cron, fires[-1], fires[-1])
        assert following is not None
        fires.append(following)

    assert all(earlier < later for earlier, later in pairwise(fires))


@settings(max_examples=100)
@given(changed=CHANGED)
def test_hourly_schedule_fires_every_hour_of_the_sun_and_not_of_the_clock(
    changed: tuple[tuple[ClockChange, ...], ClockChange],
) -> None:
    """Its time of day is `*`: it wants to run all the time, and the repeated hour is time too."""
    changes, change = changed
    cron = Cron("*/30 * * * *", zone_of(changes).key)
    fires = [first_run(cron, change.moment - timedelta(hours=3))]
    while len(fires) < 12:
        following = next_run(cron, fires[-1], fires[-1])
        assert following is not None
        fires.append(following)

    assert {later - earlier for earlier, later in pairwise(fires)} == {timedelta(minutes=30)}
