"""Cron expressions in plain words: what is said, and that it is never wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pulse_server.domain.cron_expressions import read_expression
from pulse_server.domain.errors import InvalidArgument
from pulse_ui.views.cron_fields import LAST_DAY, LAST_WEEKDAY, read_cron, read_interval
from pulse_ui.views.cron_words import cron_words
from pulse_ui.views.words import interval_words

SAID = [
    # --- through the day
    ("* * * * *", "every minute"),
    ("*/1 * * * *", "every minute"),
    ("*/15 * * * *", "every 15 minutes"),
    ("0,30 * * * *", "every 30 minutes"),
    ("0/20 * * * *", "every 20 minutes"),
    ("0 * * * *", "every hour"),
    ("0 */6 * * *", "every 6 hours"),
    ("0 0-23/2 * * *", "every 2 hours"),
    ("1 * * * *", "at 1 minute past every hour, in UTC"),
    ("45 * * * *", "at 45 minutes past every hour, in UTC"),
    ("5/15 * * * *", "at 5, 20, 35 and 50 minutes past every hour, in UTC"),
    ("30 */2 * * *", "every 2 hours from 00:30 to 22:30, in UTC"),
    ("0 */5 * * *", "every 5 hours from 00:00 to 20:00, in UTC"),
    ("0 9-17 * * *", "every hour from 09:00 to 17:00, in UTC"),
    ("0 8-20/3 * * *", "every 3 hours from 08:00 to 20:00, in UTC"),
    ("*/10 9-17 * * *", "every 10 minutes from 09:00 to 17:50, in UTC"),
    ("* 9 * * *", "every minute from 09:00 to 09:59, in UTC"),
    # --- at a time of day
    ("30 3 * * *", "at 03:30 every day, in UTC"),
    ("0 0,12 * * *", "at 00:00 and 12:00 every day, in UTC"),
    ("15,45 9 * * *", "at 09:15 and 09:45 every day, in UTC"),
    ("0 6,12,18 * * *", "at 06:00, 12:00 and 18:00 every day, in UTC"),
    # --- on days of the week
    ("0 9 * * 1-5", "at 09:00 on weekdays, in UTC"),
    ("0 9 * * MON-FRI", "at 09:00 on weekdays, in UTC"),
    ("0 9 * * mon-fri", "at 09:00 on weekdays, in UTC"),
    ("0 9 * * 6,7", "at 09:00 on weekends, in UTC"),
    ("0 9 * * SUN", "at 09:00 on Sundays, in UTC"),
    ("0 9 * * 7", "at 09:00 on Sundays, in UTC"),
    ("0 9 * * 0-6", "at 09:00 every day, in UTC"),
    ("0 9 * * 1-6", "at 09:00 every day except Sundays, in UTC"),
    ("0 9 * * sun,WED,5", "at 09:00 on Wednesdays, Fridays and Sundays, in UTC"),
    ("0 9 * * */2", "at 09:00 on Tuesdays, Thursdays, Saturdays and Sundays, in UTC"),
    ("0 9 * * TUE#2", "at 09:00 on the second Tuesday of the month, in UTC"),
    ("0 9 * * 5L", "at 09:00 on the last Friday of the month, in UTC"),
    ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on weekdays, in UTC"),
    ("*/15 * * * 1-5", "every 15 minutes on weekdays, in UTC"),
    # --- on days of the month
    ("30 3 1 * *", "at 03:30 on day 1 of the month, in UTC"),
    ("0 0 1,15 * *", "at 00:00 on days 1 and 15 of the month, in UTC"),
    ("0 0 */10 * *", "at 00:00 on days 1, 11, 21 and 31 of the month, in UTC"),
    ("0 0 1-7 * *", "at 00:00 on days 1 to 7 of the month, in UTC"),
    ("0 0 L * *", "at 00:00 on the last day of the month, in UTC"),
    ("0 18 LW * *", "at 18:00 on the last weekday of the month, in UTC"),
    # --- in some months
    ("0 0 1 JAN *", "at 00:00 on 1 January, in UTC"),
    ("0 0 29 2 *", "at 00:00 on 29 February, in UTC"),
    ("0 0 1 */3 *", "at 00:00 on day 1 of January, April, July and October, in UTC"),
    ("0 0 L 2 *", "at 00:00 on the last day of February, in UTC"),
    ("0 0 * JUN-AUG *", "at 00:00 every day in June, July and August, in UTC"),
    ("0 0 * 1-9 MON", "at 00:00 on Mondays in January to September, in UTC"),
    ("0 0 * 3 TUE#1", "at 00:00 on the first Tuesday of March, in UTC"),
    # --- a date or a weekday is enough when neither begins with a star
    ("0 9 13 * FRI", "at 09:00 on day 13 of the month and on Fridays, in UTC"),
    ("0 9 1 6 1-5", "at 09:00 on day 1 of the month and on weekdays, only in June, in UTC"),
    ("0 9 1-31 * FRI", "at 09:00 every day, in UTC"),
    # --- names
    ("@yearly", "at 00:00 on 1 January, in UTC"),
    ("@annually", "at 00:00 on 1 January, in UTC"),
    ("@monthly", "at 00:00 on day 1 of the month, in UTC"),
    ("@weekly", "at 00:00 on Sundays, in UTC"),
    ("@Daily", "at 00:00 every day, in UTC"),
    ("@midnight", "at 00:00 every day, in UTC"),
    ("@hourly", "every hour"),
    # --- as producers of the original contract write them
    ("@every 5m", "every 5 min"),
    ("@every 1.5h", "every 1 h 30 min"),
    ("@every 500ms", "every 500 ms"),
    ("TZ=Asia/Tokyo @every 90s", "every 1 min 30 s"),
    ("TZ=Europe/Paris 0 9 * * *", "at 09:00 every day, in Europe/Paris"),
    ("CRON_TZ=Asia/Tokyo 0 9 ? * MON", "at 09:00 on Mondays, in Asia/Tokyo"),
    ("0 9 1 * ?", "at 09:00 on day 1 of the month, in UTC"),
    ("?/15 * * * *", "every 15 minutes"),
]
LEFT_TO_THE_EXPRESSION = [
    "*/7 * * * *",  # begins anew at each full hour
    "1,2,3,5,8,13,21 * * * *",
    "*/15 9,17 * * *",
    "0 9 */2 * MON",  # has to be both
    "0 9 */2 * *",
    "0 9 L,15 * *",
    "0 9 * * MON,TUE#2",
    "0 9 * * MON#1,MON#3",
    "0 0 1 1,3,5,7,8,10,12 *",
    "0 0 30 2 *",  # never comes
]
NOT_READ = [
    "",
    "* * * *",
    "* * * * * *",
    "60 * * * *",
    "* 24 * * *",
    "* * 0 * *",
    "* * * 13 *",
    "* * * * 8",
    "*/0 * * * *",
    "5-1 * * * *",
    "1,,2 * * * *",
    "L/2 * * * *",
    "* * L/2 * *",
    "* * * * FRIL",
    "* * * * L",
    "* * * * MON#6",
    "* * * * MON#",
    "* * * * MON-FRI#1",
    "@reboot",
    "@every",
    "@every 5",
    "@every 1d",
    "TZ=Europe/Paris",
    "0 9 a? * *",
    "² * * * *",
    "every day at nine",
]


@pytest.mark.parametrize(("expression", "words"), SAID)
def test_expression_is_said_in_words(expression: str, words: str) -> None:
    assert cron_words(expression) == words


@pytest.mark.parametrize("expression", [*LEFT_TO_THE_EXPRESSION, *NOT_READ])
def test_what_words_would_bend_is_left_to_the_expression(expression: str) -> None:
    assert cron_words(expression) is None


def test_zone_is_said_with_a_time_of_day() -> None:
    assert cron_words("30 3 1 * *", "Europe/Paris") == "at 03:30 on day 1 of the month, in Europe/Paris"


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (timedelta(minutes=5), "every 5 min"),
        (timedelta(seconds=90), "every 1 min 30 s"),
        (timedelta(hours=12, minutes=5), "every 12 h 5 min"),
        (timedelta(days=1, milliseconds=1500), "every 1 d 1 s 500 ms"),
    ],
)
def test_interval_is_said_without_rounding(interval: timedelta, words: str) -> None:
    assert interval_words(interval) == words


# ------------------------------------------------------------ never wrong


def terms(
    first: int, last: int, names: tuple[str, ...] = (), extra: tuple[str, ...] = ()
) -> st.SearchStrategy[str]:
    value = st.integers(first - 1, last + 1).map(str) | (st.sampled_from(names) if names else st.nothing())
    span = st.just("*") | value | st.builds("{}-{}".format, value, value)
    stepped = st.builds("{}/{}".format, span, st.integers(0, last + 2))
    term = span | stepped | (st.sampled_from(extra) if extra else st.nothing())
    return st.lists(term, min_size=1, max_size=3).map(",".join)


WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
expressions = st.builds(
    "{} {} {} {} {}".format,
    terms(0, 59),
    terms(0, 23),
    terms(1, 31, extra=("L", "LW", "L/2", "W")),
    terms(1, 12, ("JAN", "MAR", "DEC")),
    terms(0, 7, WEEKDAYS, ("5L", "7L", "L", "MON#2", "7#1", "TUE#6", "FRIL")),
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@settings(max_examples=150)
@given(st.text("0123456789.+-hmsuµn", max_size=12))
@example("0.0009999ms1ms")
def test_intervals_are_read_as_the_server_reads_them(duration: str) -> None:
    try:
        theirs = read_expression(f"@every {duration}").interval or None
    except InvalidArgument:
        theirs = None

    assert read_interval(f"@every {duration}") == (None if theirs == timedelta.max else theirs)


@settings(max_examples=150)
@given(expressions)
@example("0 0 L,2-31 * *")
def test_expressions_are_read_as_the_server_reads_them(expression: str) -> None:
    try:
        theirs = CronSim(expression, NOON)
    except (CronSimError, AssertionError):
        assert read_cron(expression) is None
        return
    ours = read_cron(expression)
    if ours is None:
        return  # beyond the grammar: shown as it is
    special = {CronSim.LAST: LAST_DAY, CronSim.LAST_WEEKDAY: LAST_WEEKDAY}
    plain = {day % 7 for day in theirs.weekdays if isinstance(day, int)}
    nth = {
        (day[0] % 7, None if day[1] == CronSim.LAST else day[1])
        for day in theirs.weekdays
        if isinstance(day, tuple)
    }
    assert ours.minutes == theirs.minutes
    assert ours.hours == theirs.hours
    assert ours.dates == {special.get(day, day) for day in theirs.days}
    assert ours.months == theirs.months
    assert (ours.weekdays, {(one.weekday, one.number) for one in ours.nth_weekdays}) == (plain, nth)
    assert ours.needs_both == theirs.day_and


@settings(max_examples=30)
@given(st.lists(expressions, min_size=2, max_size=40, unique=True))
@example([expression for expression, _ in SAID])
def test_expressions_with_the_same_words_fire_at_the_same_times(found: list[str]) -> None:
    first_with: dict[str, list[datetime]] = {}
    for expression in found:
        words = cron_words(expression)
        if words is None or expression.startswith(("@", "TZ=", "CRON_TZ=")):
            continue
        simulated = CronSim(read_expression(expression).fields, NOON)
        fires = [next(simulated) for _ in range(5)]
        assert first_with.setdefault(words, fires) == fires


@given(st.sampled_from(["0 9 * * *", "*/15 * * * 1-5"]), st.integers(0, 4), st.text(min_size=1))
def test_field_beyond_the_grammar_is_never_put_into_words(expression: str, place: int, text: str) -> None:
    parts = expression.split()
    parts[place] = f"{text}!"
    assert cron_words(" ".join(parts)) is None
