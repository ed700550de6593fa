from __future__ import annotations

from datetime import timedelta

from pulse import Finding, Latency, Rates
from pulse_ui.overview.views import (
    COLUMNS,
    OverviewQuery,
    Severity,
    depth_of,
    findings_view,
    pace_of,
    read_overview_query,
    topic_table,
    worker_totals,
)
from tests.rows import each_row
from tests.ui.test_charts import minute
from tests.ui.topics import NOW, connected_worker, gone_worker, topic

# ---------------------------------------------------------------- figures


def test_the_depth_is_of_all_topics_together() -> None:
    depth = depth_of([topic("a", ready=2, running=1, age=timedelta(1)), topic("b", ready=3, waiting=4)])

    assert (depth.ready, depth.running, depth.waiting) == (5, 1, 4)
    assert depth.oldest_ready_at == NOW - timedelta(1)


def test_dead_letters_alarm_for_as_long_as_those_of_the_last_hour_are_there() -> None:
    died = Rates(0, 0, 1, 1)

    assert depth_of([topic("a", last_hour=died, dead_lettered=1)]).has_fresh_letters
    assert not depth_of([topic("a", last_hour=died, dead_lettered=0)]).has_fresh_letters
    assert not depth_of([topic("a", dead_lettered=1)]).has_fresh_letters


def test_the_pace_leaves_out_the_minute_that_is_not_over() -> None:
    pace = pace_of([minute(0, 10), minute(1, 20, failed=10), minute(2, 0)])

    assert (pace.last_minute, pace.per_minute, pace.failure_rate) == (20, 15.0, 0.25)


def test_the_pace_of_nothing_is_nothing() -> None:
    assert pace_of([]).failure_rate is None


def test_the_workers_of_a_topic_are_those_that_serve_it() -> None:
    workers = [
        connected_worker("a", "email", capacity=5, held=2),
        connected_worker("b", "report"),
        gone_worker("c", 1, timedelta(0)),
    ]

    assert (worker_totals(workers).connected, worker_totals(workers).gone) == (2, 1)
    assert (worker_totals(workers, "email").connected, worker_totals(workers, "email").capacity) == (1, 5)


# ---------------------------------------------------------------- topics


def test_the_topics_in_trouble_come_first() -> None:
    topics = [topic("busy", ready=9, running=9), topic("ill", last_hour=Rates(0, 0, 9, 9)), topic("idle")]

    found = findings_view(
        [Finding("dead", False, "ill", None, "dead-lettered 9 jobs in the last hour.", 0.0)]
    )
    table = topic_table(topics, found, "")

    assert [row.info.topic for row in table.rows] == ["ill", "busy", "idle"]
    assert [row.severity for row in table.rows] == [Severity.WARNING, None, None]


@each_row("column", [column.name for column in COLUMNS])
def test_topics_are_sorted_by_any_column(column: str) -> None:
    larger = topic(
        "a",
        ready=2,
        running=2,
        waiting=2,
        dead_lettered=2,
        workers=0,
        age=timedelta(hours=1),
        last_hour=Rates(2, 2, 2, 2),
        wait=Latency(1, 2, 2, 2),
        run=Latency(1, 2, 2, 2),
    )

    assert topic_table([topic("b"), larger], [], column).rows[0].info.topic == "a"


def test_an_unknown_column_sorts_by_trouble() -> None:
    assert topic_table([topic()], [], "__class__").sorted_by == "trouble"


def test_too_many_topics_are_counted_instead() -> None:
    topics = [topic(f"t{number:03}") for number in range(200)]

    table = topic_table(topics, [], "", 50)

    assert (len(table.rows), table.left_out) == (50, 150)
    assert topic_table(topics, [], "", most=None).left_out == 0


def test_the_bar_of_the_busiest_topic_is_full() -> None:
    topics = [topic("a", last_hour=Rates(0, 60, 40, 0)), topic("b", last_hour=Rates(0, 50, 0, 0)), topic("c")]

    rows = topic_table(topics, [], "topic").rows

    assert [(row.completed_share, row.failed_share) for row in rows] == [(60, 40), (50, 0), (0, 0)]


# ---------------------------------------------------------------- addresses


def test_a_choice_keeps_the_others() -> None:
    choice = OverviewQuery(360, "/topics", "ready", True, "a&b")

    assert choice.span_path(1_440) == "/topics?minutes=1440&sort=ready&all=1&search=a%26b"
    assert choice.unsearched_path == "/topics?minutes=360&sort=ready&all=1#topics"


def test_defaults_are_not_in_the_url() -> None:
    assert OverviewQuery().span_path(60) == "/"


@each_row("minutes", ["", "7", "-60", "60.0", "٦٠", "9" * 5_000])
def test_a_span_that_is_not_offered_is_the_last_hour(minutes: str) -> None:
    assert read_overview_query(lambda field: minutes if field == "minutes" else "") == OverviewQuery()
