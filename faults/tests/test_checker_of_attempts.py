"""I2 to I5: the checker finds a second lease, miscounted attempts, completions without a run, late starts."""

from __future__ import annotations

from typing import Any

import pytest

from faults.rules import attempts, executions, leases
from faults.tests.made_up.jobs import LEASE, MadeUpJob
from faults.tests.made_up.runs import STEP, MadeUpRun
from faults.tests.made_up.verdicts import broken

# ---------------------------------------------------------------- I3


def test_attempt_past_the_limit_is_noticed(run: MadeUpRun) -> None:
    job = MadeUpJob(run, max_attempts=1).submit().claim("worker-1").beat().start()
    run.freeze("worker-1")
    run.wait(2 * LEASE)
    job.become("lease_expired", status="RETRYING", locked_by=None, lease_until=None, ready=True, crashes=1)
    job.run("worker-2")
    assert broken(run) == {("I3", attempts.WITHIN_LIMIT), ("I3", attempts.DIES_AT_THE_LIMIT)}


def test_attempt_that_is_not_counted_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1", "failed").promote()
    lease = run.at + LEASE
    job.worker = "worker-2"
    job.become(status="RUNNING", run=2, locked_by="worker-2", lease_until=lease, ready=False).execute()
    assert broken(run) == {("I3", attempts.COUNTED)}


def test_attempt_that_is_not_returned_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1")
    job.become(status="RETRYING", ready=True, locked_by=None, lease_until=None).run("worker-2")
    assert broken(run) == {("I3", attempts.COUNTED)}


def test_limit_that_changes_without_a_redrive_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().become(max_attempts=9).run("worker-1")
    assert broken(run) == {("I3", attempts.LIMIT_STAYS)}


def test_redrive_that_leaves_no_attempt_is_noticed(run: MadeUpRun) -> None:
    job = MadeUpJob(run, max_attempts=1).submit().run("worker-1", "failed")
    run.send("redrive", job_id=job.id)
    job.become(status="PENDING", ready=True, finished_by=None).cancel()
    assert broken(run) == {("I3", attempts.WITHIN_LIMIT)}


def test_job_that_dies_with_attempts_left_is_noticed(run: MadeUpRun) -> None:
    job = MadeUpJob(run, expect="any").submit().claim("worker-1").start().end("failed")
    job.become("failed", status="DEAD_LETTERED", finished_by="worker-1", locked_by=None, lease_until=None)
    assert broken(run) == {("I3", attempts.DIES_AT_THE_LIMIT)}


# ---------------------------------------------------------------- I4 and I5


def test_completion_of_a_job_that_never_ran_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").complete()
    assert ("I4", executions.RAN_AT_ALL) in broken(run)


def test_completion_of_a_job_that_ran_only_afterwards_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").complete().start().end()
    assert ("I4", executions.RAN_AT_ALL) in broken(run)


def test_completion_of_a_handler_that_did_not_return_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().complete()
    assert broken(run) == {("I4", executions.RAN_TO_ITS_END)}


def test_start_after_the_completion_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").reap().promote().run("worker-2").start("worker-1", 1)
    assert broken(run) == {("I5", executions.NO_START_AFTER_END)}


def test_start_that_may_have_come_before_the_completion_is_no_violation(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    """The clocks are known to 50 µs: within that, the order is uncertain."""
    job.submit().claim("worker-1").reap().promote().run("worker-2")
    run.t -= (STEP - 40) * 1000
    job.start("worker-1", 1)
    assert broken(run) == set()


def test_first_start_after_a_freeze_is_a_violation(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1")
    run.freeze("worker-1")
    job.expire().promote().run("worker-2")
    run.thaw("worker-1")
    job.start("worker-1", 1)
    assert broken(run) == {("I5", executions.NO_START_AFTER_END)}


# ---------------------------------------------------------------- I2: leases


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
