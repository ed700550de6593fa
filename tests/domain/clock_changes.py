"""Every change of the clocks in some years, in every zone, found by looking at the clocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

_BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
_END = datetime(2028, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
# No zone changes its clocks and takes that back within one of them.
_WEEKS = [_BEGIN + number * 7 * _DAY for number in range((_END - _BEGIN).days // 7 + 1)]
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class ClockChange:
    """At `moment` the clocks of the zone went from one offset to another."""

    moment: datetime
    before: timedelta
    after: timedelta

    @property
    def skips_to_the_next_day(self) -> bool:
        return self.after > self.before and (
            (self.moment + self.before).date() < (self.moment + self.after).date()
        )


@cache
def zones_by_changes() -> dict[tuple[ClockChange, ...], list[str]]:
    """The zones that change their clocks in these years, those that do so alike together."""
    alike: dict[tuple[ClockChange, ...], list[str]] = {}
    for name in sorted(available_timezones() - {"localtime"}):
        if changes := _changes(ZoneInfo(name)):
            alike.setdefault(changes, []).append(name)
    return alike


def fire_of_the_day(zone: ZoneInfo, changes: tuple[ClockChange, ...], day: date, at: time) -> datetime:
    """When a daily job fires on that day: the first time that the clocks show the time of day, or, where they
    skip it, the moment at which they do."""
    wanted = datetime.combine(day, at)
    moment = wanted.replace(tzinfo=zone).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wanted:
        return moment
    (skipping,) = (change for change in changes if abs(change.moment - moment) < _DAY / 2)
    return skipping.moment


def _changes(zone: ZoneInfo) -> tuple[ClockChange, ...]:
    offsets = [week.astimezone(zone).utcoffset() for week in _WEEKS]
    found = []
    for (week, before), (next_week, after) in pairwise(zip(_WEEKS, offsets, strict=True)):
        if before != after:
            assert before is not None
            assert after is not None
            found.append(ClockChange(_moment_of_change(zone, week, next_week), before, after))
    return tuple(found)


def _moment_of_change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The first moment with the later offset, to the second."""
    while after - before > _SECOND:
        middle = before + (after - before) // _SECOND // 2 * _SECOND
        if middle.astimezone(zone).utcoffset() == before.astimezone(zone).utcoffset():
            before = middle
        else:
            after = middle
    return after
