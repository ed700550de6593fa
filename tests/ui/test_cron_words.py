"""Cron expressions in words, and that they are never wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pulse_server.base.errors import InvalidArgument
from pulse_server.schedules.rules import read_expression
from pulse_ui.schedules.views import cron_words, read_interval
from pulse_ui.words import interval_words
from tests.rows import each_row

SAID = [
    # --- through the day
    ("* * * * *", "every minute"),
    ("*/1 * * * *", "every minute"),
    ("*/15 * * * *", "every 15th minute of every hour"),
    ("0,30 * * * *", "at minutes 0 and 30 of every hour, in UTC"),
    ("0/20 * * * *", "every 20th minute of every hour, in UTC"),
    ("0 * * * *", "at the start of every hour, in UTC"),
    ("0 */6 * * *", "at minute 0 past every sixth hour, in UTC"),
    ("0 0-23/2 * * *", "at minute 0 past every second hour, in UTC"),
    ("1 * * * *", "at minute 1 of every hour, in UTC"),
    ("45 * * * *", "at minute 45 of every hour, in UTC"),
    ("5/15 * * * *", "every 15th minute from 5 through 59 of every hour, in UTC"),
    ("30 */2 * * *", "at minute 30 past every second hour, in UTC"),
    ("0 */5 * * *", "at minute 0 past every fifth hour, in UTC"),
    ("0 9-17 * * *", "at minute 0 past every hour from 9 through 17, in UTC"),
    ("0 8-20/3 * * *", "at minute 0 past every third hour from 8 through 20, in UTC"),
    ("*/10 9-17 * * *", "every 10th minute from 09:00 through 17:59, in UTC"),
    ("* 9 * * *", "every minute from 09:00 through 09:59, in UTC"),
    # --- at a time of day
    ("30 3 * * *", "at 03:30 every day, in UTC"),
    ("0 0,12 * * *", "at 00:00 and 12:00 every day, in UTC"),
    ("15,45 9 * * *", "at 09:15 and 09:45 every day, in UTC"),
    ("0 6,12,18 * * *", "at 06:00, 12:00, and 18:00 every day, in UTC"),
    # --- on days of the week
    ("0 9 * * 1-5", "at 09:00 on Monday through Friday, in UTC"),
    ("0 9 * * MON-FRI", "at 09:00 on Monday through Friday, in UTC"),
    ("0 9 * * mon-fri", "at 09:00 on Monday through Friday, in UTC"),
    ("0 9 * * 6,7", "at 09:00 on Saturday and Sunday, in UTC"),
    ("0 9 * * SUN", "at 09:00 on Sunday, in UTC"),
    ("0 9 * * 7", "at 09:00 on Sunday, in UTC"),
    ("0 9 * * 0-6", "at 09:00 on Sunday through Saturday, in UTC"),
    ("0 9 * * 1-6", "at 09:00 on Monday through Saturday, in UTC"),
    ("0 9 * * sun,WED,5", "at 09:00 on Sunday, Wednesday, and Friday, in UTC"),
    ("0 9 * * */2", "at 09:00 on every second day of week, in UTC"),
    ("0 9 * * TUE#2", "at 09:00 on the second Tuesday of the month, in UTC"),
    ("0 9 * * 5L", "at 09:00 on the last Friday of the month, in UTC"),
    ("*/15 9-17 * * 1-5", "every 15th minute from 09:00 through 17:59 on Monday through Friday, in UTC"),
    ("*/15 * * * 1-5", "every 15th minute of every hour on Monday through Friday, in UTC"),
    # --- on days of the month
    ("30 3 1 * *", "at 03:30 on the first day of every month, in UTC"),
    ("0 0 1,15 * *", "at 00:00 on the first and the 15th day of month, in UTC"),
    ("0 0 */10 * *", "at 00:00 on every 10th day of month, in UTC"),
    ("0 0 1-7 * *", "at 00:00 on every day of month from 1 through 7, in UTC"),
    ("0 0 L * *", "at 00:00 on the last day of every month, in UTC"),
    ("0 18 LW * *", "at 18:00 on the last weekday of every month, in UTC"),
    # --- in some months
    ("0 0 1 JAN *", "at 00:00 on January 1, in UTC"),
    ("0 0 29 2 *", "at 00:00 on February 29, in UTC"),
    ("0 0 1 */3 *", "at 00:00 on the first day of every third month, in UTC"),
    ("0 0 L 2 *", "at 00:00 on the last day of February, in UTC"),
    ("0 0 * JUN-AUG *", "at 00:00 in every month from June through August, in UTC"),
    ("0 0 * 1-9 MON", "at 00:00 on Monday in every month from January through September, in UTC"),
    ("0 0 * 3 TUE#1", "at 00:00 on the first Tuesday of the month in March, in UTC"),
    # --- a date or a weekday is enough when neither begins with a star
    ("0 9 13 * FRI", "at 09:00 on the 13th day of month and on Friday, in UTC"),
    ("0 9 1 6 1-5", "at 09:00 on the first day of month and on Monday through Friday in June, in UTC"),
    ("0 9 1-31 * FRI", "at 09:00 every day, in UTC"),
    # --- names
    ("@yearly", "at 00:00 on January 1, in UTC"),
    ("@annually", "at 00:00 on January 1, in UTC"),
    ("@monthly", "at 00:00 on the first day of every month, in UTC"),
    ("@weekly", "at 00:00 on Sunday, in UTC"),
    ("@Daily", "at 00:00 every day, in UTC"),
    ("@midnight", "at 00:00 every day, in UTC"),
    ("@hourly", "at the start of every hour, in UTC"),
    # --- as producers of the original contract write them
    ("@every 5m", "every 5 min"),
    ("@every 1.5h", "every 1 h 30 min"),
    ("@every 500ms", "every 500 ms"),
    ("TZ=Asia/Tokyo @every 90s", "every 1 min 30 s"),
    ("TZ=Europe/Paris 0 9 * * *", "at 09:00 every day, in Europe/Paris"),
    ("CRON_TZ=Asia/Tokyo 0 9 ? * MON", "at 09:00 on Monday, in Asia/Tokyo"),
    ("0 9 1 * ?", "at 09:00 on the first day of every month, in UTC"),
    ("?/15 * * * *", "every 15th minute of every hour"),
    # --- lists and steps that do not go round
    ("*/7 * * * *", "every seventh minute of every hour"),
    ("1,2,3,5,8,13,21 * * * *", "at minutes 1, 2, 3, 5, 8, 13, and 21 of every hour, in UTC"),
    ("*/15 9,17 * * *", "every 15th minute past hours 9 and 17, in UTC"),
    ("0 9 */2 * MON", "at 09:00 on every second day of month if it's on Monday, in UTC"),
    ("0 9 */2 * *", "at 09:00 on every second day of month, in UTC"),
    ("0 9 L,15 * *", "at 09:00 on the last and the 15th day of month, in UTC"),
    ("0 9 * * MON,TUE#2", "at 09:00 on Monday and the second Tuesday of the month, in UTC"),
    (
        "0 9 * * MON#1,MON#3",
        "at 09:00 on the first Monday of the month and the third Monday of the month, in UTC",
    ),
    (
        "0 0 1 1,3,5,7,8,10,12 *",
        "at 00:00 on the first day of January, March, May, July, August, October, and December, in UTC",
    ),
]
NOT_READ = [
    "0 0 30 2 *",  # never comes
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


@each_row("expression, words", SAID)
def test_expression_is_explained_in_words(expression: str, words: str) -> None:
    assert cron_words(expression) == words


@each_row("expression", NOT_READ)
def test_unreadable_expression_has_no_words(expression: str) -> None:
    assert cron_words(expression) is None


def test_zone_follows_a_time_of_day() -> None:
    assert cron_words("30 3 1 * *", "Europe/Paris") == (
        "at 03:30 on the first day of every month, in Europe/Paris"
    )


@each_row(
    "interval, words",
    [
        (timedelta(minutes=5), "every 5 min"),
        (timedelta(seconds=90), "every 1 min 30 s"),
        (timedelta(hours=12, minutes=5), "every 12 h 5 min"),
        (timedelta(days=1, milliseconds=1500), "every 1 d 1 s 500 ms"),
    ],
)
def test_interval_is_not_rounded(interval: timedelta, words: str) -> None:
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


@settings(max_examples=30)
@given(st.lists(expressions, min_size=2, max_size=40, unique=True))
@example([expression for expression, _ in SAID])
@example(["0 9 1-31 * FRI", "0 9 * * FRI", "0 9 * * *"])
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
def test_field_beyond_the_grammar_has_no_words(expression: str, place: int, text: str) -> None:
    parts = expression.split()
    parts[place] = f"{text}!"
    assert cron_words(" ".join(parts)) is None
