"""From the query of an address to the filter that pulsed takes, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo

from pulse import JobStatus
from pulse_ui.jobs.filters import JobQuery, fields_of, in_words, read_filter
from tests.rows import each_row

NOW = datetime(2030, 6, 1, 12, 0, tzinfo=UTC)
PARIS = ZoneInfo("Europe/Paris")
SCHEDULE = "018f3c2a-1b2c-7d3e-8f40-112233445566"


def read(*fields: tuple[str, str], now: datetime = NOW) -> JobQuery:
    return read_filter(fields, now=now, zone=PARIS)


def test_empty_query_asks_for_any_job() -> None:
    asked = read(("topic", " "), ("status", ""), ("metadata", ""))
    assert asked.is_any
    assert asked.path() == "/jobs"


def test_every_field_reaches_the_filter() -> None:
    asked = read(
        ("topic", "email"),
        ("lane", "customer-42"),
        ("status", "DEAD_LETTERED"),
        ("since", "2h"),
        ("before", "15m"),
        ("schedule", SCHEDULE.upper()),
        ("error", "timed out"),
        ("error_group", "0123456789ab"),
        ("metadata", "tenant=acme"),
        ("metadata", "note=a=b"),
    )
    assert asked.problems == {}
    assert asked.which == {
        "topic": "email",
        "lane": "customer-42",
        "status": JobStatus.DEAD_LETTERED,
        "since": NOW - timedelta(hours=2),
        "before": NOW - timedelta(minutes=15),
        "schedule_id": SCHEDULE,
        "error_contains": "timed out",
        "error_group": "0123456789ab",
        "metadata": {"tenant": "acme", "note": "a=b"},
    }


@each_row(
    "text, moment",
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("1h30m", NOW - timedelta(minutes=90)),
        (" 3 d ", NOW - timedelta(days=3)),
        ("15min", NOW - timedelta(minutes=15)),
        ("2030-05-31 14:00", datetime(2030, 5, 31, 12, 0, tzinfo=UTC)),
        ("2030-05-31T14:00", datetime(2030, 5, 31, 12, 0, tzinfo=UTC)),
        ("2030-05-31T14:00Z", datetime(2030, 5, 31, 14, 0, tzinfo=UTC)),
        ("2030-05-31", datetime(2030, 5, 30, 22, 0, tzinfo=UTC)),
    ],
)
def test_moments_are_spans_or_times_in_the_zone_of_the_visitor(text: str, moment: datetime) -> None:
    assert read(("since", text)).which["since"] == moment


@each_row(
    "name, text",
    [
        ("topic", "two words"),
        ("topic", "x" * 256),
        ("status", "DONE"),
        ("since", "yesterday"),
        ("since", "99999999w"),
        ("since", "0001-01-01"),
        ("before", "2h ago"),
        ("before", "2201-01-01"),
        ("schedule", "nightly"),
        ("error", "x" * 201),
        ("error_group", "zz"),
        ("metadata", "tenant"),
        ("metadata", "=acme"),
    ],
)
def test_what_cannot_be_understood_becomes_a_sentence_and_is_not_used(name: str, text: str) -> None:
    asked = read((name, text), ("topic" if name != "topic" else "error", "kept"))
    assert list(asked.problems) == [name]
    assert asked.problems[name].endswith(".")
    assert asked.typed[name] == text
    assert len(asked.which) == 1


def test_one_key_cannot_have_two_values() -> None:
    asked = read(("metadata", "tenant=acme"), ("metadata", "tenant=other"))
    assert asked.which["metadata"] == {"tenant": "acme"}
    assert "metadata" in asked.problems


def test_end_before_the_beginning_is_a_problem() -> None:
    asked = read(("since", "1h"), ("before", "2h"))
    assert list(asked.problems) == ["before"]
    assert "before" not in asked.which


def test_lane_needs_its_topic() -> None:
    asked = read(("lane", "customer-42"))
    assert "enter the topic as well" in asked.problems["lane"]
    assert asked.which == {}
    both = read(("topic", "email"), ("lane", "customer-42"))
    assert in_words(both.which, PARIS) == "unfinished jobs on email, in the lane customer-42"
    assert [chip.name for chip in both.chips(PARIS)] == ["topic", "lane"]


def test_error_group_means_dead_letters() -> None:
    asked = read(("error_group", "0123456789ab"))
    assert asked.status is JobStatus.DEAD_LETTERED
    assert [chip.name for chip in asked.chips(PARIS)] == ["error_group"]


def test_error_group_of_another_status_is_a_problem() -> None:
    asked = read(("error_group", "none"), ("status", "PENDING"))
    assert list(asked.problems) == ["error_group"]
    assert asked.which == {"status": JobStatus.PENDING}


def test_address_keeps_what_was_typed() -> None:
    asked = read(("since", "2h"), ("topic", "a/b"), ("metadata", "k=v&w"), ("cursor", "abc"))
    query = parse_qsl(urlsplit(asked.path(cursor="next")).query)
    assert query == [("since", "2h"), ("topic", "a/b"), ("metadata", "k=v&w"), ("cursor", "next")]


def test_each_chip_leads_to_the_list_without_it() -> None:
    asked = read(("topic", "email"), ("metadata", "a=1"), ("metadata", "b=2"), ("since", "bad"))
    without = {chip.value: parse_qsl(urlsplit(chip.without).query) for chip in asked.chips(PARIS)}
    assert without == {
        "email": [("metadata", "a=1"), ("metadata", "b=2")],
        "a=1": [("topic", "email"), ("metadata", "b=2")],
        "b=2": [("topic", "email"), ("metadata", "a=1")],
    }


def test_each_page_of_each_list_has_a_name_of_its_own() -> None:
    asked = read(("topic", "a"))
    assert asked.key() == read(("topic", "a"), ("status", "")).key()
    assert len({asked.key(), asked.key("x"), asked.key("y"), read(("topic", "b")).key()}) == 4


def test_fields_of_a_form_mean_the_same_later_on() -> None:
    asked = read(
        ("topic", "email"),
        ("status", "CANCELED"),
        ("since", "2h"),
        ("schedule", SCHEDULE),
        ("error", "no"),
        ("metadata", "a=b"),
    )
    later = read(*fields_of(asked.which), now=NOW + timedelta(days=3))
    assert later.problems == {}
    assert later.which == asked.which


def test_filter_is_described_in_words() -> None:
    asked = read(("topic", "email"), ("status", "DEAD_LETTERED"), ("since", "2h"), ("metadata", "a=b"))
    assert in_words(asked.which, PARIS, number=1204) == (
        "1,204 dead-lettered jobs on email, submitted since 1 Jun 2030 12:00:00, with a=b in the metadata"
    )


def test_filter_without_a_status_is_about_unfinished_jobs() -> None:
    assert in_words(read(("topic", "email")).which, PARIS, number=1) == "1 unfinished job on email"
