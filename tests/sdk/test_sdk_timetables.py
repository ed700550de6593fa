"""A timetable that cannot be meant is refused where it is declared, and no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pulse
from pulse_server.base.errors import InvalidArgument
from pulse_server.schedules import rules
from tests.domain.test_cron_validation import ACCEPTED, REFUSED
from tests.rows import each_row

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)

_FIELD = st.text(alphabet="0123459*?-/,#LW", min_size=1, max_size=6) | st.sampled_from(
    ["*", "?", "*/5", "1-5", "MON", "fri-sat", "jan", "L", "LW", "5L", "7#5", "0-59/7", "31", "30", "2"]
)
EXPRESSIONS = st.lists(_FIELD, min_size=5, max_size=5).map(" ".join)


@each_row("expression", ACCEPTED)
def test_expression_that_the_server_accepts_can_be_declared(expression: str) -> None:
    pulse.Pulse().cron("reports", expression)


@each_row("expression", REFUSED)
def test_expression_that_the_server_refuses_fails_where_it_is_declared(expression: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=r"cron expression|time zone"):
        pulse.Pulse().cron("reports", expression)
    with pytest.raises(pulse.InvalidArgument, match=r"cron expression|time zone"):
        pulse.SyncPulse().cron("reports", expression)


@each_row("expression", [text for text, problem in REFUSED.items() if "bad " in problem])
def test_server_explains_a_bad_field_as_the_client_does(expression: str) -> None:
    with pytest.raises(pulse.InvalidArgument) as here:
        pulse.Pulse().cron("reports", expression)
    with pytest.raises(InvalidArgument) as there:
        rules.check_timetable(rules.cron(expression, "UTC"), NOW)
    explained = [str(caught.value).partition("has a bad ")[2].upper() for caught in (here, there)]
    assert explained[0] == explained[1] != ""


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS)
def test_client_refuses_nothing_that_the_server_accepts(expression: str) -> None:
    try:
        pulse.Pulse().cron("reports", expression)
    except pulse.InvalidArgument:
        with pytest.raises(InvalidArgument):
            rules.check_timetable(rules.cron(expression, "UTC"), NOW)


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS)
def test_server_refuses_of_what_can_be_declared_only_days_that_never_come(expression: str) -> None:
    try:
        rules.check_timetable(rules.cron(expression, "UTC"), NOW)
    except InvalidArgument as refused:
        if "in the next 50 years" in str(refused):
            return
        with pytest.raises(pulse.InvalidArgument):
            pulse.Pulse().cron("reports", expression)


@each_row(
    "tz, sentence",
    [
        ("Mars/Olympus", r"time zone 'Mars/Olympus' is not known; use an IANA name"),
        ("../../etc/passwd", "is not known"),
        ("Europe/Berlin", "names the zone 'Europe/Paris', and tz is 'Europe/Berlin': name the zone once"),
    ],
)
def test_zone_that_cannot_be_meant_fails_where_it_is_declared(tz: str, sentence: str) -> None:
    with pytest.raises(pulse.InvalidArgument, match=sentence):
        pulse.Pulse().cron("reports", "TZ=Europe/Paris 0 9 * * *" if "Berlin" in tz else "@daily", tz=tz)


@each_row("interval", [timedelta(0), timedelta(milliseconds=99), -timedelta(1), timedelta(3651)])
def test_interval_that_the_server_refuses_fails_where_it_is_declared(interval: timedelta) -> None:
    with pytest.raises(pulse.InvalidArgument, match="than"):
        pulse.Pulse().every("reports", interval)
