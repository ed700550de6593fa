"""The tree of the jobs of a workflow: its order, its folded lines, and the words for each job."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse.handlers.workflows import JobOutcome
from pulse.jobs.models import JobStatus
from pulse.workflows import WorkflowInfo, WorkflowJob, WorkflowStatus
from pulse_cli.terminal import Line, line_width
from pulse_cli.workflows import describe_workflow, tree, workflow_view
from pulse_text.workflows import progress, state, waits_for
from tests.rows import each_row

NOW = datetime.now(UTC)
SECOND = timedelta(seconds=1)


def job(number: int, name: str, *parents: int, **fields: Any) -> WorkflowJob:
    known: dict[str, Any] = {
        "id": f"0199c0de-0000-7000-8000-{number:012}",
        "topic": name.partition("-")[0],
        "when": "succeeded",
        "state": "waiting" if parents else "ready",
        "status": JobStatus.PENDING,
        "outcome": None,
        "unended_parents": len(parents),
        "attempts": 0,
        "last_error": None,
        "started_at": None,
        "finished_at": None,
        "next_run_at": None,
    }
    return WorkflowJob(number=number, name=name, parents=parents, **known | fields)


def ended(outcome: str, error: str | None = None) -> dict[str, Any]:
    statuses = {"succeeded": JobStatus.COMPLETED, "failed": JobStatus.DEAD_LETTERED}
    return {
        "state": {"skipped": "skipped", "canceled": "dropped"}.get(outcome, "ready"),
        "status": statuses.get(outcome, JobStatus.CANCELED),
        "outcome": JobOutcome(outcome),
        "last_error": error,
        "started_at": NOW - 3 * SECOND,
        "finished_at": NOW - 2 * SECOND,
    }


def workflow(jobs: list[WorkflowJob], status: str = "running") -> WorkflowInfo:
    counts = {outcome: sum(job.outcome == outcome for job in jobs) for outcome in JobOutcome}
    return WorkflowInfo(
        id="0199c0de-0000-7000-8000-0000000000aa",
        name="nightly",
        status=WorkflowStatus(status),
        jobs=len(jobs),
        unfinished=sum(job.outcome is None for job in jobs),
        **{str(outcome): count for outcome, count in counts.items()},
        submitted_at=NOW - timedelta(days=3),
        finished_at=None if status == "running" else NOW - timedelta(days=3) + 5 * SECOND,
        canceled_at=None,
        schedule_id=None,
    )


def shape(jobs: list[WorkflowJob], fold_from: int | None = 10) -> list[str]:
    return [
        f"{branch.lead}{branch.label}" + (f" after {branch.after}" if branch.after else "")
        for branch in tree(jobs, fold_from)
    ]


def text(lines: list[Line]) -> list[str]:
    return ["".join(cell.text for cell in line).rstrip() for line in lines]


# ---------------------------------------------------------------- what is below what


def test_job_is_below_the_job_that_it_waits_for() -> None:
    jobs = [job(1, "fetch"), job(2, "parse", 1), job(3, "check", 1), job(4, "store", 2)]
    assert shape(jobs) == ["fetch", "├─ parse", "│  └─ store", "└─ check"]


def test_job_with_several_parents_is_printed_once_below_the_last_of_them() -> None:
    jobs = [job(1, "a"), job(2, "b"), job(3, "c", 2), job(4, "join", 1, 3, 2), job(5, "end", 4)]
    assert shape(jobs) == ["a", "b", "└─ c", "   └─ join after a, b, c", "      └─ end"]


def test_many_parents_are_counted() -> None:
    jobs = [job(number, f"part-{number}") for number in range(1, 8)]
    jobs.append(job(8, "load", *range(1, 8)))
    assert shape(jobs)[-1] == "└─ load after part-1, part-2, part-3 and 4 more"


def test_parent_that_was_added_later_comes_first() -> None:
    assert shape([job(1, "collect", 3), job(2, "list"), job(3, "page", 2)]) == [
        "list",
        "└─ page",
        "   └─ collect",
    ]


def test_long_chain_leaves_space_for_names() -> None:
    jobs = [job(1, "link-1"), *(job(number, f"link-{number}", number - 1) for number in range(2, 3_001))]
    lines = shape(jobs)
    assert len(lines) == 3_000
    assert max(map(len, lines)) < 50
    assert lines[-1].endswith("└─ link-3000")


# ---------------------------------------------------------------- what is folded


def fan(size: int) -> list[WorkflowJob]:
    pages = [job(number, f"page-{number}", 1) for number in range(2, size + 2)]
    return [job(1, "split"), *pages, job(size + 2, "collect", *range(2, size + 2))]


def test_equal_siblings_share_a_line() -> None:
    assert shape(fan(10_000)) == ["split", "└─ page × 10,000", "   └─ collect"]
    assert len(shape(fan(9))) == 11
    assert len(shape(fan(20), None)) == 22


def test_equal_chains_side_by_side_are_folded() -> None:
    jobs = [job(1, "list")]
    for number in range(2, 42, 2):
        jobs += [job(number, f"fetch-{number}", 1), job(number + 1, f"parse-{number}", number)]
    jobs.append(job(42, "collect", *range(3, 43, 2)))
    assert shape(jobs) == ["list", "└─ fetch × 20", "   └─ parse × 20", "      └─ collect"]


def test_job_with_a_child_of_its_own_is_not_folded() -> None:
    jobs = [*fan(20), job(23, "repair", 5, when="failed")]
    assert shape(jobs) == [
        "split",
        "├─ page × 19",
        "└─ page-5",
        "   ├─ collect after page × 19, page-5",
        "   └─ repair",
    ]


def test_condition_and_topic_keep_jobs_apart() -> None:
    jobs = [job(1, "a")]
    jobs += [job(number, f"b-{number}", 1) for number in range(2, 14)]
    jobs += [job(number, f"b-{number}", 1, when="failed") for number in range(14, 26)]
    jobs += [job(number, f"c-{number}", 1) for number in range(26, 38)]
    assert shape(jobs) == ["a", "├─ b × 12", "├─ b × 12", "└─ c × 12"]


def test_folded_line_counts_and_names_failures() -> None:
    jobs = fan(10_000)
    for at in range(1, 9_121):
        jobs[at] = job(at + 1, f"page-{at + 1}", 1, **ended("succeeded"))
    for at in range(100, 105):
        jobs[at] = job(at + 1, f"page-{at + 1}", 1, **ended("failed", "ValueError: no page"))
    started = time.thread_time()  # of the processor: other processes may have it in between
    lines = text(describe_workflow(workflow(jobs), jobs, width=100))
    assert time.thread_time() - started < 3
    shown = lines[lines.index("Jobs") + 1 :]
    assert shown[0].startswith("○ split")
    assert "└─ ✕ page × 10,000" in shown[1]
    assert shown[1].endswith("9,115 done, 5 failed, 880 waiting")
    assert "╎ ✕ page-101" in shown[2]
    assert "failed: ValueError: no page" in shown[2]
    assert shown[5].split() == ["╎", "…", "2", "more", "failed"]
    assert "collect" in shown[6]
    assert "waits for 10,000 of 10,000" in shown[6]
    assert len(shown) == 7


def test_tree_that_is_too_long_is_folded_further_and_then_cut() -> None:
    jobs: list[WorkflowJob] = []
    for first in range(1, 901, 3):
        load = job(first + 2, f"load{first}", first, first + 1)
        jobs += [job(first, f"a{first}-1"), job(first + 1, f"a{first}-2"), load]
    lines = text(describe_workflow(workflow(jobs), jobs, width=None))
    lines = lines[lines.index("Jobs") + 1 :]
    assert lines[0].startswith("○ a1 × 2")
    assert lines[1].startswith("└─ ○ load1 ")
    assert len(lines) == 200
    assert lines[-1] == "… and 601 more: 400 ready, 201 waiting"
    every = text(describe_workflow(workflow(jobs), jobs, width=None, height=None))
    assert len(every) > 900


# ---------------------------------------------------------------- lines


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_tree_fits_the_terminal(width: int) -> None:
    jobs = [
        job(1, "extract-monday", topic="warehouse.extract", **ended("succeeded")),
        job(2, "extract-tuesday", topic="warehouse.extract", **ended("failed", "OSError: " + "x" * 200)),
        job(3, "load", 1, 2, topic="warehouse.load", **ended("canceled", "extract-tuesday failed")),
    ]
    lines = describe_workflow(workflow(jobs), jobs, width=width)
    lines = lines[next(at for at, line in enumerate(lines) if text([line]) == ["Jobs"]) :]
    assert max(map(line_width, lines)) <= width
    shown = "\n".join(text(lines))
    assert "✕ extract-tues" in shown
    assert ("0199c0de-0000-7000-8000-000000000001" in shown) == (width == 200)


def test_line_has_the_topic_the_parents_and_the_condition() -> None:
    jobs = [
        job(1, "extract"),
        job(2, "extract-2"),
        job(3, "load", 1, 2, topic="warehouse"),
        job(4, "alert", 3, when="failed"),
    ]
    lines = text(describe_workflow(workflow(jobs), jobs, width=100))
    first, second, load, alert = lines[lines.index("Jobs") + 1 :]
    assert first.split() == ["○", "extract", "waits", "for", "a", "worker"]
    assert second.split()[:3] == ["○", "extract-2", "waits"]
    assert load.split(maxsplit=3)[1:] == [
        "○",
        "load",
        "warehouse  waits for 2 of 2    after extract, extract-2",
    ]
    assert alert.endswith("waits for 1 of 1    on failure")


def test_control_characters_of_names_are_escaped() -> None:
    jobs = [job(1, "a\x1b[31m", topic="b\n", **ended("failed", "c\x1b"))]
    shown = "\n".join(text(describe_workflow(workflow(jobs), jobs, width=None)))
    assert "\x1b" not in shown
    assert "a\\x1b[31m" in shown


# ---------------------------------------------------------------- words

EARLIER, LATER = NOW - 3 * SECOND, NOW + 4 * SECOND


@each_row(
    "fields, words",
    [
        ({}, "waits for a worker"),
        ({"next_run_at": LATER}, "runs in 4s"),
        ({"state": "waiting", "parents": (1, 2, 3, 4, 5), "unended_parents": 2}, "waits for 2 of 5"),
        ({"status": JobStatus.RUNNING, "started_at": EARLIER}, "running 3s"),
        ({"status": JobStatus.RETRYING, "next_run_at": LATER, "last_error": "boom"}, "retrying in 4s: boom"),
        ({"status": JobStatus.RETRYING, "next_run_at": EARLIER}, "retrying now"),
        ({"status": JobStatus.RETRYING, "next_run_at": LATER, "waits_for": ""}, "sleeps for 4s"),
        ({"status": JobStatus.RETRYING, "waits_for": "paid\nlost"}, "waits for paid or lost"),
        (ended("succeeded"), "done in 1s"),
        (ended("failed", "ValueError: no"), "failed: ValueError: no"),
        (ended("canceled", "wrong day"), "canceled: wrong day"),
        (ended("canceled"), "canceled"),
        (ended("skipped"), "skipped: not needed"),
        (ended("succeeded") | {"status": None, "started_at": None, "finished_at": None}, "done"),
        # Ended, but not settled.
        ({"status": JobStatus.COMPLETED}, "done"),
        ({"status": JobStatus.DEAD_LETTERED, "last_error": "boom"}, "failed: boom"),
    ],
)
def test_words_for_a_job(fields: dict[str, Any], words: str) -> None:
    parents = fields.get("parents", ())
    rest = {name: value for name, value in fields.items() if name != "parents"}
    assert state(job(9, "a", *parents, **{"state": "ready"} | rest), NOW) == words


def test_words_for_what_a_job_waits_for() -> None:
    parents = [
        job(1, "extract-mon", status=JobStatus.RUNNING),
        job(2, "extract-tue", status=JobStatus.RETRYING, next_run_at=LATER, last_error="boom: no"),
        job(3, "extract-wed", **ended("succeeded")),
    ]
    assert waits_for(parents, NOW) == (
        "waits for 2 of 3: extract-mon (running), extract-tue (retrying in 4s)"
    )
    assert waits_for([], NOW) == "waits for other jobs"
    many = waits_for([job(number, f"part-{number}") for number in range(7)], NOW)
    assert many.startswith("waits for 7 of 7: part-0 (waits for a worker), ")
    assert many.endswith("part-4 (waits for a worker) and 2 more")


def test_words_for_progress() -> None:
    jobs = [job(1, "a", **ended("succeeded")), job(2, "b", **ended("failed")), job(3, "c")]
    assert progress(workflow(jobs)) == "1 of 3 done, 1 failed"
    skipped = [job(1, "a", **ended("succeeded")), job(2, "b", **ended("skipped"))]
    assert progress(workflow(skipped)) == "1 of 2 done, 1 skipped"


def test_row_of_a_workflow_has_age_and_duration() -> None:
    row = workflow_view().row(workflow([job(1, "a", **ended("succeeded"))], "succeeded"))
    assert [cell.text for cell in row[1:]] == ["nightly", "succeeded", "1 of 1 done", "3d", "5s"]
    assert workflow_view().row(workflow([job(1, "a")]))[-1].text == "–"
