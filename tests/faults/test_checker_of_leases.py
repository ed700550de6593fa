"""I2: the checker finds a second lease, a start without a lease, and a report that is not of the holder."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.made_up.jobs import MadeUpJob
from tests.faults.made_up.runs import MadeUpRun
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import executions, leases


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    return MadeUpJob(run)


def test_lease_that_is_given_while_another_is_valid_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    run.freeze("worker-1")
    job.become("lease_expired", status="RETRYING", locked_by=None, lease_until=None, ready=True, crashes=1)
    job.run("worker-2")
    assert broken(run) == {("I2", leases.NOT_BEFORE_IT_EXPIRED), ("I2", leases.ONE_LEASE)}


@pytest.mark.parametrize("change", [{"locked_by": "worker-2"}, {"locked_by": "worker-2", "lease_until": 1}])
def test_lease_that_passes_to_another_holder_is_noticed(
    run: MadeUpRun, job: MadeUpJob, change: dict[str, Any]
) -> None:
    job.submit().claim("worker-1").start().become(**change)
    job.start("worker-2").cancel()
    assert ("I2", leases.SAME_HOLDER) in broken(run)


def test_report_from_another_worker_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().end()
    job.become(status="COMPLETED", finished_by="worker-2", locked_by=None, lease_until=None)
    assert broken(run) == {("I2", leases.REPORT_OF_HOLDER)}


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_report_of_a_zombie_that_is_taken_for_its_successors_is_noticed(
    run: MadeUpRun, job: MadeUpJob, outcome: str
) -> None:
    """The row looks right, but worker-2 never started the attempt that it completed."""
    job.submit().claim("worker-1").start().end().reap().promote().claim("worker-2").beat()
    if outcome == "completed":
        job.complete()
    else:
        job.fail().promote().run("worker-3")
    assert broken(run) == {("I2", leases.HOLDER_STARTED)}


def test_report_of_a_zombie_that_is_taken_while_its_successor_runs_is_noticed(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    """The row looks right, but the handler of worker-2 still runs."""
    job.submit().claim("worker-1").start().reap().promote().claim("worker-2").beat().start()
    run.write("worker-1", "ended", job_id=job.id, attempt=1, run=1, worker="worker-1", outcome="completed")
    job.complete().end()
    assert broken(run) == {("I4", executions.RAN_TO_ITS_END)}


def test_failure_of_a_zombie_that_is_taken_while_its_successor_runs_is_noticed(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim("worker-1").start().reap().promote().claim("worker-2").beat().start()
    run.write("worker-1", "ended", job_id=job.id, attempt=1, run=1, worker="worker-1", outcome="failed")
    job.fail().end().promote().run("worker-3")
    assert broken(run) == {("I2", leases.HOLDER_FAILED)}


def test_success_that_is_taken_for_a_failure_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().end("completed").fail().promote().run("worker-2")
    assert broken(run) == {("I2", leases.HOLDER_FAILED)}


@pytest.mark.parametrize(("worker", "claimed"), [("worker-2", 1), ("worker-1", 2)])
def test_handler_that_starts_without_a_claim_is_noticed(
    run: MadeUpRun, job: MadeUpJob, worker: str, claimed: int
) -> None:
    job.submit().claim("worker-1").start().start(worker, claimed).end().complete()
    assert broken(run) == {("I2", leases.STARTED_UNDER_LEASE)}


def test_claim_that_starts_two_handlers_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().start().end().complete()
    assert broken(run) == {("I2", leases.STARTED_ONCE)}


def test_attempt_that_was_returned_may_start_again_at_the_same_worker(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().release().run("worker-1")
    assert broken(run) == set()


def test_report_of_a_run_before_that_is_taken_for_a_later_one_is_noticed(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    """The worker and the attempt are the same."""
    job.submit().claim("worker-1").start().end().release().claim("worker-1").beat().complete()
    assert broken(run) == {("I2", leases.HOLDER_STARTED)}


def test_handler_that_starts_for_a_job_that_is_not_there_is_noticed(run: MadeUpRun) -> None:
    run.write("worker-1", "started", job_id="none", attempt=1, run=1, worker="worker-1", topic="mail")
    assert broken(run) == {("I2", leases.STARTED_UNDER_LEASE)}
