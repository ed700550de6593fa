"""The form of a schedule: what its fields stand for, and what is said about those that stand for nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pulse
from pulse_text.times import format_exact
from pulse_ui.schedules.views import (
    ScheduleForm,
    form_of_schedule,
    read_changes,
    read_form,
    read_span,
    read_spec,
)
from pulse_ui.web.forms import (
    EDITED_PAYLOAD,
    InvalidField,
    metadata_text,
    payload_text,
    read_metadata,
    read_payload,
    refused,
)
from tests.rows import each_row

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PARIS = ZoneInfo("Europe/Paris")
GOOD = ScheduleForm(topic="send-report", cron="0 9 * * 1-5", time_zone="Europe/Paris")


def schedule(spec: pulse.Cron | pulse.Every | pulse.At, kind: str, **more: object) -> pulse.ScheduleInfo:
    known = pulse.ScheduleInfo(
        id="01970000-0000-7000-8000-000000000000",
        name="morning-report",
        topic="send-report",
        kind=kind,
        spec=spec,
        next_run_at=NOW,
        last_run_at=None,
        paused=False,
        priority=3,
        max_attempts=5,
        metadata={"team": "billing"},
        payload=b'{"to":"ann"}',
        catch_up="skip",
        created_at=NOW,
    )
    return replace(known, **more)  # type: ignore[arg-type]


def problem_of(**typed: str) -> dict[str, str]:
    _, problems = read_form(GOOD.typed(typed), NOW)
    return problems


# ------------------------------------------------------------ from the form


def test_whole_form_becomes_a_schedule() -> None:
    wanted, problems = read_form(
        GOOD.typed(
            {
                "name": " morning-report ",
                "payload": '{"to": "ann"}',
                "priority": "-2",
                "max_attempts": "7",
                "catch_up": "all",
                "overlap": "queue",
                "metadata": "team=billing\n\nformula=a=b",
            }
        ),
        NOW,
    )
    assert problems == {}
    assert wanted is not None
    assert (wanted.name, wanted.topic, wanted.priority, wanted.max_attempts) == (
        "morning-report",
        "send-report",
        -2,
        7,
    )
    assert wanted.spec == pulse.Cron("0 9 * * 1-5", "Europe/Paris")
    assert wanted.args == b'{"to": "ann"}'
    assert (wanted.catch_up, wanted.overlap) == ("all", "queue")
    assert wanted.metadata == {"team": "billing", "formula": "a=b"}


def test_fields_that_may_be_empty_say_nothing() -> None:
    wanted, _ = read_form(GOOD.typed({"priority": "", "max_attempts": " "}), NOW)
    assert wanted is not None
    assert (wanted.name, wanted.args, wanted.priority, wanted.max_attempts, wanted.metadata) == (
        None,
        None,
        0,
        None,
        {},
    )


@each_row(
    "field, text, words",
    [
        ("topic", " ", "Enter the topic"),
        ("cron", "", "Enter an expression"),
        ("time_zone", "", "Enter a time zone"),
        ("payload", "{'to': 1}", "Not valid JSON: object keys must be strings, at line 1, column 2."),
        ("payload", '{"a": 1,\n "b": }', "at line 2, column 7"),
        ("payload", '{"a": ', "it ends too early"),
        ("payload", "[1,\n1e400]", "number out of range"),
        ("payload", "NaN", "Not valid JSON"),
        ("payload", "[" * 100_000, "nested too deeply"),
        ("priority", "high", "not a valid whole number"),
        ("priority", "99999999999", "not a valid whole number"),
        ("max_attempts", "1.5", "not a valid whole number"),
        ("catch_up", "sometimes", "Choose one"),
        ("overlap", "sometimes", "Choose one"),
        ("metadata", "team=billing\nnonsense", "Line 2 is not of the form name=value."),
        ("metadata", "=value", "Line 1"),
        ("metadata", "a=1\na=2", "Line 2 repeats a."),
    ],
)
def test_mistake_is_reported_at_its_field(field: str, text: str, words: str) -> None:
    problems = problem_of(**{field: text})
    assert list(problems) == [field]
    assert words in problems[field]


def test_all_mistakes_are_reported_at_once() -> None:
    assert set(problem_of(topic="", cron="", payload="{", metadata="x")) == {
        "topic",
        "cron",
        "payload",
        "metadata",
    }


def test_unknown_kind_is_taken_for_cron() -> None:
    assert ScheduleForm().typed({"kind": "sometimes", "csrf": "x"}).kind == "cron"


# ------------------------------------------------------------ when


@each_row(
    "text, span",
    [
        ("5m", timedelta(minutes=5)),
        ("90s", timedelta(seconds=90)),
        ("2h", timedelta(hours=2)),
        ("1H 30 min", timedelta(hours=1, minutes=30)),
        ("1w", timedelta(days=7)),
        ("1s500ms", timedelta(seconds=1.5)),
    ],
)
def test_span_is_read(text: str, span: timedelta) -> None:
    assert read_span(text) == span


@each_row("text", ["", "5", "m", "5 parsecs", "-5m", "1,5h", "٥m", "999999999w999999999w"])
def test_invalid_duration_is_reported(text: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read_span(text)
    assert caught.value.field == "every"


@given(st.timedeltas(timedelta(milliseconds=1), timedelta(days=3650)))
def test_span_is_written_as_it_is_read(span: timedelta) -> None:
    in_milliseconds = span // timedelta(milliseconds=1) * timedelta(milliseconds=1)
    assert read_span(format_exact(in_milliseconds)) == in_milliseconds


def test_moment_is_read_in_its_zone() -> None:
    form = ScheduleForm(kind="once", at="2026-07-14T09:00", time_zone="Europe/Paris")
    assert read_spec(form, NOW) == pulse.At(datetime(2026, 7, 14, 7, tzinfo=UTC))


@each_row(
    "at, time_zone, field, words",
    [
        ("", "UTC", "at", "Choose a date"),
        ("tomorrow", "UTC", "at", "is not a time"),
        ("9999-12-31T23:59", "America/New_York", "at", "is not a time"),
        ("2026-02-28T12:00", "UTC", "at", "has passed"),
        ("2026-03-29T02:30", "Europe/Paris", "at", "does not exist in Europe/Paris"),
        ("2026-07-14T09:00", "Europe/Atlantis", "time_zone", "is not a time zone"),
    ],
)
def test_impossible_moment_is_reported(at: str, time_zone: str, field: str, words: str) -> None:
    with pytest.raises(InvalidField) as caught:
        read_spec(ScheduleForm(kind="once", at=at, time_zone=time_zone), NOW)
    assert caught.value.field == field
    assert words in caught.value.sentence


def test_expression_that_names_its_zone_means_that_one() -> None:
    form = ScheduleForm(kind="cron", cron="TZ=Asia/Tokyo 0 9 * * *", time_zone="Europe/Paris")

    assert read_spec(form, NOW) == pulse.Cron("TZ=Asia/Tokyo 0 9 * * *", "Asia/Tokyo")


def test_interval_needs_no_zone() -> None:
    assert read_spec(ScheduleForm(kind="interval", every="5m", time_zone=""), NOW) == pulse.Every(
        timedelta(minutes=5)
    )


# ------------------------------------------------------------ from a schedule and back

OF_EACH_KIND = [
    schedule(pulse.Cron("0 9 * * 1-5", "Asia/Tokyo"), "cron"),
    schedule(pulse.Every(timedelta(minutes=90)), "interval"),
    schedule(pulse.At(datetime(2020, 1, 1, 9, 0, 7, 123456, tzinfo=UTC)), "once"),
]


@each_row("known", OF_EACH_KIND)
def test_untouched_form_changes_nothing(known: pulse.ScheduleInfo) -> None:
    form = form_of_schedule(known, PARIS)
    assert read_changes(form, form, NOW) == ({}, {})


def test_only_changed_fields_are_sent() -> None:
    before = form_of_schedule(OF_EACH_KIND[1], PARIS)
    assert read_changes(before.typed({"priority": "9"}), before, NOW) == ({"priority": 9}, {})
    assert read_changes(before.typed({"every": "5m"}), before, NOW) == (
        {"spec": pulse.Every(timedelta(minutes=5))},
        {},
    )


def test_zone_and_expression_are_sent_apart() -> None:
    before = form_of_schedule(OF_EACH_KIND[0], PARIS)
    assert read_changes(before.typed({"time_zone": "UTC"}), before, NOW) == ({"tz": "UTC"}, {})
    said, _ = read_changes(before.typed({"cron": "0 8 * * *"}), before, NOW)
    assert (said["spec"].names_zone, said.keys()) == (False, {"spec"})
    said, _ = read_changes(before.typed({"cron": "0 8 * * *", "time_zone": "UTC"}), before, NOW)
    assert (said["spec"].names_zone, said["tz"]) == (False, "UTC")
    own = {"cron": "TZ=Europe/Paris 0 8 * * *", "time_zone": "UTC"}
    said, _ = read_changes(before.typed(own), before, NOW)
    assert said == {"spec": pulse.Cron("TZ=Europe/Paris 0 8 * * *", "Europe/Paris")}
    assert read_changes(before.typed({"time_zone": " "}), before, NOW)[1].keys() == {"time_zone"}


def test_emptied_payload_is_sent() -> None:
    before = form_of_schedule(OF_EACH_KIND[0], PARIS)
    assert read_changes(before.typed({"payload": " ", "metadata": ""}), before, NOW) == (
        {"args": None, "metadata": {}},
        {},
    )


def test_moment_is_shown_in_the_visitors_zone() -> None:
    form = form_of_schedule(schedule(pulse.At(datetime(2026, 7, 14, 7, tzinfo=UTC)), "once"), PARIS)
    assert (form.at, form.time_zone) == ("2026-07-14T09:00", "Europe/Paris")


def test_payload_is_laid_out_without_touching_its_values() -> None:
    assert payload_text(b'{"a":1e400,"a":[1.0,12345678901234567890123]}') == (
        '{\n  "a": 1e400,\n  "a": [\n    1.0,\n    12345678901234567890123\n  ]\n}'
    )
    assert read_payload('{"a": 1e30}\n') == b'{"a": 1e30}'


@each_row("payload", [b"\x00\xff", b"plain text", b'"' + b"x" * EDITED_PAYLOAD + b'"'])
def test_payload_that_does_not_fit_a_form_is_left_out(payload: bytes) -> None:
    assert payload_text(payload) is None


@given(st.dictionaries(st.text(), st.text(), max_size=4))
def test_metadata_is_written_as_it_is_read_or_not_at_all(metadata: dict[str, str]) -> None:
    text = metadata_text(metadata)
    if text is not None:
        assert read_metadata(text) == metadata


# ------------------------------------------------------------ what the server says


def test_servers_sentence_goes_to_the_field_it_names() -> None:
    error = pulse.InvalidArgument("max_attempts is 0: it must be from 1 to 1000.")
    assert refused(error) == ("max_attempts", "The number of attempts is 0: it must be from 1 to 1000.")


def test_taken_name_is_reported_at_the_name() -> None:
    assert refused(pulse.AlreadyExists("The name 'x' belongs to schedule y."))[0] == "name"


def test_error_without_a_field_is_shown_above_the_form() -> None:
    error = pulse.InvalidArgument("Something else is wrong.")
    assert refused(error) == ("", "Something else is wrong.")
