"""Cron expressions and time zones: judged when the schedule is made, and refused with the field named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse_server.base.errors import InvalidArgument
from pulse_server.schedules.rules import Cron, check_timetable, cron, first_run, upcoming, zone
from tests.rows import each_row

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)  # a Sunday

ACCEPTED = {
    "* * * * *": "2026-11-15 12:01",
    "*/15 * * * *": "2026-11-15 12:15",
    "0 9 * * 1-5": "2026-11-16 09:00",
    "0 9 * * MON-FRI": "2026-11-16 09:00",
    "0 9 * * mon": "2026-11-16 09:00",
    "0 0 1 jan *": "2027-01-01 00:00",
    "0 0 * * 0": "2026-11-22 00:00",
    "0 0 * * 7": "2026-11-22 00:00",
    "0 0 29 2 *": "2028-02-29 00:00",
    "0 0 31 2 1": "2027-02-01 00:00",  # either the day of the month or the day of the week, as in Debian
    "0 0 L * *": "2026-11-30 00:00",
    "0 0 * * 1#2": "2026-12-14 00:00",
    "@yearly": "2027-01-01 00:00",
    "@annually": "2027-01-01 00:00",
    "@monthly": "2026-12-01 00:00",
    "@weekly": "2026-11-22 00:00",
    "@daily": "2026-11-16 00:00",
    "@midnight": "2026-11-16 00:00",
    "@hourly": "2026-11-15 13:00",
    "@Daily": "2026-11-16 00:00",
    "1," * 450 + "1 * * * *": "2026-11-15 12:01",
    # --- as producers of the original contract write them
    "@every 5m": "2026-11-15 12:05",
    "@every 1h30m": "2026-11-15 13:30",
    "@every 1.5h": "2026-11-15 13:30",
    "@every 90s": "2026-11-15 12:01",
    "@every 36h": "2026-11-17 00:00",
    "@every 3600000ms": "2026-11-15 13:00",
    "@every 60000000us": "2026-11-15 12:01",
    "@every 60000000µs": "2026-11-15 12:01",
    "@every +2m": "2026-11-15 12:02",
    "TZ=Europe/Paris 0 9 * * *": "2026-11-16 08:00",
    "CRON_TZ=Asia/Tokyo 0 9 * * *": "2026-11-16 00:00",
    "CRON_TZ=Asia/Tokyo @daily": "2026-11-15 15:00",
    "TZ=Asia/Tokyo @every 5m": "2026-11-15 12:05",
    "TZ= 0 9 * * *": "2026-11-16 09:00",
    "* * ? * *": "2026-11-15 12:01",
    "0 9 ? * MON": "2026-11-16 09:00",
    "0 9 1 * ?": "2026-12-01 09:00",
    "?/15 ? * * *": "2026-11-15 12:15",
    "5/15 * * * *": "2026-11-15 12:05",
}

REFUSED = {
    "": "is empty",
    " \t ": "is empty",
    "0 0 * * * *": "has 6 fields; it takes five",
    "0 0 0 * * * *": "has 7 fields; it takes five",
    "0 0 * *": "has 4 fields; it takes five",
    "nonsense": "has 1 field; it takes five",
    "every day at nine, please": "bad minute field",
    "60 * * * *": "bad minute field",
    "-1 * * * *": "bad minute field",
    "1.5 * * * *": "bad minute field",
    "*/0 * * * *": "bad minute field",
    "5-1 * * * *": "bad minute field",
    "1,,2 * * * *": "bad minute field",
    "٣ * * * *": "bad minute field",
    "* 24 * * *": "bad hour field",
    "* 9am * * *": "bad hour field",
    "* * 0 * *": "bad day-of-month field",
    "* * 32 * *": "bad day-of-month field",
    "0 0 30 2 *": "never occurs",
    "0 0 31 4,6,9,11 *": "never occurs",
    "* * * 0 *": "bad month field",
    "* * * 13 *": "bad month field",
    "* * * FOO *": "bad month field",
    "* * * * 8": "bad day-of-week field",
    "* * * * someday": "bad day-of-week field",
    "* * * * 1#6": "bad day-of-week field",
    "* * * * \0": "bad day-of-week field",
    "@reboot": "is not known; the names are @yearly",
    "@every": "has no duration: write for example @every 90s",
    "@every 5": "has no duration",
    "@every 0": "has no duration",
    "@every m": "has no duration",
    "@every -5m": "has no duration",
    "@every 5m 3s": "has no duration",
    "@every 5 minutes": "has no duration",
    "@every 5M": "has no duration",
    "@every 1d": "has no duration",
    "@every 99ms": "is shorter than 100 milliseconds",
    "@every 0s": "is shorter than 100 milliseconds",
    "@every 87601h": "is longer than 3650 days",
    "@every 999999999999999h": "is longer than 3650 days",
    "@every5m": "is not known; the names are @yearly",
    "TZ=Europe/Paris": "names a time zone and nothing else",
    "TZ=Mars/Olympus 0 9 * * *": "names a time zone: 'Mars/Olympus' is not known",
    "TZ=Local 0 9 * * *": "names a time zone: 'Local' is not known",
    "TZ=UTC 0 0 0 * * *": "has 6 fields; it takes five",
    "0 9 a? * *": "bad day-of-month field",
    "?? * * * *": "bad minute field",
    "@": "is not known; the names are @yearly",
    "9" * 5000 + " * * * *": "has 5008 characters; 1000 are allowed",
    "x" * 10_000_000: "has 10000000 characters; 1000 are allowed",
    "@" + "x" * 900: "is not known; the names are @yearly",
}


@each_row("expression, first", ACCEPTED.items())
def test_expression_is_accepted_and_fires_at_its_times(expression: str, first: str) -> None:
    check_timetable(Cron(expression), NOW)

    assert f"{first_run(Cron(expression), NOW):%Y-%m-%d %H:%M}" == first


@each_row("expression, problem", REFUSED.items())
def test_expression_is_refused_with_the_field_named(expression: str, problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_timetable(Cron(expression), NOW)

    assert caught.value.field == "cron"
    message = str(caught.value)
    assert message.startswith("cron ")
    assert problem in message
    assert message.endswith(".")
    assert len(message) < 400


def test_zone_of_the_expression_is_the_schedules_zone() -> None:
    paris = cron("  TZ=Europe/Paris  0 9 * * * ", "")

    assert paris == Cron("TZ=Europe/Paris 0 9 * * *", "Europe/Paris"), "the text stays, the zone is known"
    assert cron("TZ=Europe/Paris 0 9 * * *", "Europe/Paris") == paris
    assert cron("TZ=Europe/Paris 0 9 * * *", "UTC") == paris, "which is what callers send who chose none"
    with pytest.raises(InvalidArgument, match=r"^time_zone is 'Asia/Tokyo', and the cron .* 'Europe/Paris'"):
        cron("TZ=Europe/Paris 0 9 * * *", "Asia/Tokyo")


@settings(max_examples=300)
@given(
    st.one_of(
        st.text(max_size=40),
        st.text("0123456789.+-hmsuµn", max_size=12).map("@every {}".format),
        st.lists(st.text("0123456789*/,-#LW?@ MONJAN", min_size=1, max_size=6), min_size=5, max_size=5).map(
            " ".join
        ),
    )
)
def test_any_text_is_either_refused_by_name_or_fires(expression: str) -> None:
    try:
        check_timetable(Cron(expression), NOW)
    except InvalidArgument as refused:
        field = refused.field
    else:
        field = "cron"
        fires = upcoming(Cron(expression), first_run(Cron(expression), NOW), 3)
        assert fires == sorted(set(fires))
        assert fires[0] > NOW
    assert field == "cron"


@each_row(
    "name",
    [
        "",
        "Mars/Olympus",
        "Europe",
        "Europe/",
        "europe/paris",
        " UTC",
        "+02:00",
        "../../etc/passwd",
        "/etc/localtime",
        "localtime",
        "posixrules",
        "posix/Europe/Paris",
        "right/Europe/Paris",
        "a\0b",
        "täglich",
        "x" * 200_000,
    ],
)
def test_unknown_time_zone_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^time_zone .* is not known; .*Europe/Paris.*\.$") as caught:
        check_timetable(Cron("@daily", name), NOW)

    assert len(str(caught.value)) < 400


@each_row("name", ["UTC", "Europe/Paris", "America/Argentina/Ushuaia", "Etc/GMT+5"])
def test_zone_of_the_database_is_known(name: str) -> None:
    assert zone(name).key == name
