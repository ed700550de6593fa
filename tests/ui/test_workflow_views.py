"""Workflows as their pages show them: the state of a job in words, boxes, rows and pages."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pulse
from pulse_ui import tuning
from pulse_ui.workflows import views
from pulse_ui.workflows.layout import fold, unfolded
from pulse_ui.workflows.views import Drawing, cut, draw, job_table, progress_of, workflow_row
from tests.rows import each_row
from tests.ui.jobs_to_show import START, at

NOW = at(100)


def node(number: int = 1, status: str | None = "PENDING", **facts: Any) -> pulse.WorkflowJob:
    """A job of a workflow; facts that are not given are empty."""
    defaults: dict[str, Any] = {
        "id": f"019a0000-0000-7000-8000-{number:012}",
        "name": f"job-{number}",
        "topic": "extract",
        "when": "succeeded",
        "state": "ready",
        "outcome": None,
        "parents": (),
        "unended_parents": 0,
        "attempts": 0,
        "last_error": None,
        "started_at": None,
        "finished_at": None,
        "next_run_at": None,
    }
    return pulse.WorkflowJob(
        number=number, status=None if status is None else pulse.JobStatus(status), **{**defaults, **facts}
    )


def workflow(**facts: Any) -> pulse.WorkflowInfo:
    defaults: dict[str, Any] = {
        "id": "019a0000-0000-7000-8000-000000000001",
        "name": "nightly",
        "status": "running",
        **dict.fromkeys(("jobs", "unfinished", "succeeded", "failed", "canceled", "skipped"), 0),
        "submitted_at": START,
        **dict.fromkeys(("finished_at", "canceled_at", "schedule_id")),
    }
    return pulse.WorkflowInfo(**{**defaults, **facts})


DONE = {"outcome": "succeeded", "started_at": at(10), "finished_at": at(11.2)}


@each_row(
    "job, said",
    [
        (node(state="waiting", parents=(1, 2, 3, 4, 5), unended_parents=2), "waits for 2 of 5"),
        (node(), "ready"),
        (node(next_run_at=at(90)), "ready"),
        (node(next_run_at=at(160)), "due in 1 min"),
        (node(status="RUNNING", started_at=at(97)), "running for 3 s"),
        (node(status="RUNNING", started_at=at(99.5)), "running"),
        (node(status="RETRYING", next_run_at=at(104), last_error="boom"), "retrying in 4 s: boom"),
        (node(status="RETRYING", next_run_at=at(90)), "retrying now"),
        (node(status="RETRYING", next_run_at=at(104), waits_for="", last_error="old"), "sleeps for 4 s"),
        (node(status="RETRYING", waits_for="paid"), "waits for paid"),
        (
            node(status="RETRYING", next_run_at=datetime.max.replace(tzinfo=START.tzinfo)),
            "waits for a signal",
        ),
        (node(status="COMPLETED", **DONE), "completed in 1.2 s"),
        (node(status="DEAD_LETTERED", last_error="ValueError: x\nmore"), "dead-lettered: ValueError: x"),
        (node(status="CANCELED", outcome="canceled", last_error="a typo"), "canceled: a typo"),
        (
            node(status="CANCELED", outcome="canceled", state="dropped"),
            "canceled: a job that it waited for did not succeed",
        ),
        (node(status="CANCELED", outcome="skipped", state="skipped"), "skipped: not needed"),
        (node(status=None, outcome="failed"), "dead-lettered: deleted"),
        (node(status=None, **DONE), "completed in 1.2 s: deleted"),
        (node(status=None, outcome="canceled"), "canceled: deleted"),
    ],
)
def test_state_of_a_job_in_words(job: pulse.WorkflowJob, said: str) -> None:
    assert views.detail(job, NOW) == said


def test_job_that_sleeps_is_not_said_to_be_retried() -> None:
    assert views.counted([node(status="RETRYING", waits_for=""), node(status="RETRYING")]) == {
        "RETRYING": 1,
        "SUSPENDED": 1,
    }


def test_every_kind_has_a_mark_and_a_name() -> None:
    assert {*views.ORDER} == views.MARKS.keys() == views.NAMES.keys()
    assert len({*views.MARKS.values()}) == len(views.ORDER)


def test_progress_in_words_and_as_a_bar() -> None:
    shown = progress_of(
        workflow(jobs=10_003, unfinished=880, succeeded=9_119, failed=3, canceled=0, skipped=1)
    )
    assert shown.text == "9,123 of 10,003 jobs ended, 3 failed, 1 skipped"
    assert [part.style for part in shown.parts] == ["completed", "dead_lettered", "skipped"]
    assert shown.parts[1].left == shown.parts[0].width
    assert shown.parts[1].width == 1, "a few of many stay visible"


@each_row(
    "counts", [{"failed": 1, "succeeded": 9_999, "jobs": 10_000}, {"jobs": 0}, {"jobs": 1, "skipped": 1}]
)
def test_bar_never_runs_over(counts: dict[str, int]) -> None:
    assert sum(part.width for part in progress_of(workflow(**counts)).parts) <= 100


def test_workflow_took_the_time_until_its_end_or_now() -> None:
    assert workflow_row(workflow(), NOW).took == 100
    assert workflow_row(workflow(finished_at=at(7), status="failed"), NOW).took == 7


def drawing(jobs: list[pulse.WorkflowJob], **options: Any) -> Drawing:
    folded = unfolded(jobs) or fold(jobs)
    assert folded is not None
    return draw({job.number: job for job in jobs}, folded, NOW, lambda numbers: f"/{numbers[0]}", **options)


def test_box_has_the_state_and_the_name_of_its_job() -> None:
    (box,) = drawing([node(name="report", status="RUNNING", started_at=at(97), when="always")]).shapes
    assert (box.style, box.mark, box.name, box.words) == (
        "running",
        "▶",
        "report",
        "always · running for 3 s",
    )
    assert box.title == "report on extract: running for 3 s (runs always)"
    assert box.link == "/1"


def test_box_of_several_jobs_counts_them_by_state() -> None:
    jobs = [node(1, "COMPLETED", **DONE)]
    jobs += [node(number, "COMPLETED", parents=(1,), topic="page", **DONE) for number in range(2, 302)]
    jobs[9] = node(10, "DEAD_LETTERED", parents=(1,), topic="page", outcome="failed")
    _, box = drawing(jobs).shapes
    assert (box.style, box.name, box.words) == ("dead_lettered", "page × 300", "1 dead, 299 completed")
    assert box.title == "300 jobs on page: 1 dead, 299 completed"
    assert [part.style for part in box.parts] == ["completed", "dead_lettered"]
    assert box.parts[1].width >= 1.9, "one of many stays visible"


def test_shared_lines_are_drawn_once_and_those_with_a_condition_apart() -> None:
    jobs = [
        node(1),
        node(2, parents=(1,)),
        node(3, parents=(2, 1)),
        node(4, parents=(2, 1), when="failed"),
    ]
    shown = drawing(jobs)
    assert shown.lines.count("M") == 5, "1-2, 1-joint, through the joint, joint-3, 2-3"
    assert shown.conditional_lines.count("M") == 2
    assert shown.arrows.count("M") == 3


@each_row("text, fits", [("short", "short"), ("a longer name", "a longe…"), ("名前が長いです", "名前が…")])
def test_long_names_are_cut(text: str, fits: str) -> None:
    assert cut(text, 8) == fits


JOBS = [
    node(1, "COMPLETED", name="list", topic="list", **DONE),
    *(node(number, "COMPLETED", parents=(1,), topic="page", **DONE) for number in range(2, 260)),
    node(260, state="waiting", parents=tuple(range(2, 260)), unended_parents=1, topic="collect"),
]


def test_table_comes_in_pages() -> None:
    table = job_table("w", JOBS, fold(JOBS), {"page": "3"}, NOW)
    assert (table.page, table.pages, table.total) == (3, 3, 260)
    assert [row.job.number for row in table.rows] == [*range(201, 261)]
    assert table.path(page="2") == "/workflows/w?page=2#jobs"
    assert len(job_table("w", JOBS, fold(JOBS), {}, NOW).rows) == tuning.WORKFLOW_ROWS


def test_table_of_a_state_and_of_a_box() -> None:
    table = job_table("w", JOBS, fold(JOBS), {"state": "waiting"}, NOW)
    assert [row.job.number for row in table.rows] == [260]
    assert table.rows[0].detail == "for 1 of 258"
    assert [parent.name for parent in table.rows[0].parents] == ["job-2", "job-3", "job-4"]
    assert table.rows[0].more_parents == 255
    table = job_table("w", JOBS, fold(JOBS), {"like": "2"}, NOW)
    assert (table.total, table.tabs) == (258, (("completed", "Completed", 258),))
    assert table.path(state="completed") == "/workflows/w?state=completed&like=2#jobs"


@each_row("asked", [{"state": "odd", "like": "260000000000", "page": "-1"}, {"like": "7", "page": "x"}])
def test_invalid_fields_of_the_table_are_ignored(asked: dict[str, str]) -> None:
    assert job_table("w", JOBS, fold(JOBS), asked, NOW).path() == "/workflows/w#jobs"
    assert job_table("w", JOBS, fold(JOBS), asked, NOW).page == 1
