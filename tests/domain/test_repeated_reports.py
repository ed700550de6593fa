"""Judging a report that the fence did not let through: a repeat, or too late."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pulse_server.jobs.reports import FailureReport, Report, is_repeat, refusal
from pulse_server.jobs.rules import Attempt, Claim, Job, JobStatus, Outcome
from tests.rows import each_row

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = Job(
    id="j",
    topic="email",
    status=JobStatus.RETRYING,
    priority=0,
    attempts=2,
    max_attempts=5,
    submitted_at=NOW,
    next_run_at=NOW,
)
COMPLETED = replace(JOB, status=JobStatus.COMPLETED, finished_by="A", finished_at=NOW)


def failed_once(attempt: int = 2, worker_id: str = "A", outcome: Outcome = Outcome.FAILED) -> Job:
    return replace(JOB, history=(Attempt(attempt, attempt, worker_id, NOW, NOW, outcome, "boom"),))


def report(worker_id: str | None = "A", attempt: int | None = 2, success: bool = True, **more: Any) -> Report:
    claim = Claim("j", worker_id, attempt)
    return claim if success else FailureReport(claim, **more)


@each_row("worker_id", ["A", None])
@each_row("attempt", [2, None])
def test_success_of_the_completing_attempt_is_a_repeat(worker_id: str | None, attempt: int | None) -> None:
    assert is_repeat(report(worker_id, attempt), COMPLETED)


@each_row("late", [report("B"), report("B", None), report("A", 1), report(None, 1), report(success=False)])
def test_any_other_report_on_a_completed_job_is_not(late: Report) -> None:
    assert not is_repeat(late, COMPLETED)


@each_row("status", [status for status in JobStatus if status is not JobStatus.COMPLETED])
def test_success_is_no_repeat_unless_the_job_is_completed(status: JobStatus) -> None:
    assert not is_repeat(report(None, None), replace(COMPLETED, status=status))


@each_row("outcome", [Outcome.FAILED, Outcome.DISCARDED])
@each_row("worker_id", ["A", None])
def test_failure_that_is_in_the_history_is_a_repeat(worker_id: str | None, outcome: Outcome) -> None:
    assert is_repeat(report(worker_id, success=False), failed_once(outcome=outcome))


@each_row("outcome", [Outcome.LEASE_EXPIRED, Outcome.CANCELED])
def test_attempt_that_ended_otherwise_was_not_reported_before(outcome: Outcome) -> None:
    assert not is_repeat(report(success=False), failed_once(outcome=outcome))


@each_row("late", [report("B", 2, False), report("A", 1, False), report("A", None, False)])
def test_failure_of_another_claim_is_not_a_repeat(late: Report) -> None:
    assert not is_repeat(late, failed_once())


def test_failure_stays_a_repeat_while_the_next_attempt_runs() -> None:
    running = replace(failed_once(), status=JobStatus.RUNNING, attempts=3, locked_by="B")
    assert is_repeat(report(success=False), running)


def test_success_after_the_same_attempt_failed_is_not_a_repeat() -> None:
    assert not is_repeat(report(success=True), failed_once())


@each_row("status", [status for status in JobStatus if status is not JobStatus.RUNNING])
def test_refusal_names_the_status(status: JobStatus) -> None:
    problem = refusal(report(), replace(JOB, status=status))

    assert problem.job_id == "j"
    assert f"is {status}, not RUNNING" in str(problem)


def test_refusal_names_both_attempts() -> None:
    running = replace(JOB, status=JobStatus.RUNNING, attempts=3, locked_by="A")
    assert "attempt 3" in str(refusal(report(attempt=2), running))
    assert "attempt 2 came too late" in str(refusal(report(attempt=2), running))


def test_refusal_states_that_another_worker_holds_the_job() -> None:
    running = replace(JOB, status=JobStatus.RUNNING, locked_by="B")
    assert "held by another worker" in str(refusal(report("A", 2), running))
