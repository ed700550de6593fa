"""I11 to I13: the checker finds snoozes that cost, runs out of order, late starts and jobs lost too often."""

from __future__ import annotations

import pytest

from tests.faults.changes import EXPIRE, verb_of
from tests.faults.made_up.jobs import LEASE, MadeUpJob
from tests.faults.made_up.runs import MadeUpRun
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import attempts, crashes, leases, snoozes, start_limits, transitions


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    return MadeUpJob(run, max_attempts=20)


def test_snoozed_job_that_runs_again_is_fine(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().snooze().promote().claim("worker-1").beat().snooze("suspended")
    job.promote().run("worker-2")
    assert (job.now.attempts, job.now.run) == (1, 3)
    assert broken(run) == set()


@pytest.mark.parametrize(
    ("outcome", "columns", "rule"),
    [
        ("snoozed", {"attempts": 1}, attempts.COUNTED),
        ("suspended", {"attempts": 1}, attempts.COUNTED),
        ("snoozed", {"max_attempts": 21}, attempts.LIMIT_STAYS),
        ("suspended", {"max_attempts": 21}, attempts.LIMIT_STAYS),
        ("snoozed", {"snoozes": 0}, None),
        ("suspended", {"snoozes": 1}, None),
    ],
)
def test_snooze_that_costs_an_attempt_or_is_miscounted_is_noticed(
    run: MadeUpRun, job: MadeUpJob, outcome: str, columns: dict[str, int], rule: str | None
) -> None:
    job.submit().claim("worker-1").beat().snooze(outcome, **columns).promote().run("worker-2")
    assert broken(run) == {("I11", snoozes.COSTS_NOTHING)} | ({("I3", rule)} if rule else set())


def test_run_number_that_is_used_again_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").release().claim("worker-2").beat().snooze().promote()
    job.claim("worker-3", run=1).beat().execute()
    assert broken(run) == {("I11", snoozes.RUN_GROWS)}


@pytest.mark.parametrize("changed", [0, 2])
def test_run_number_that_changes_without_a_claim_is_noticed(
    run: MadeUpRun, job: MadeUpJob, changed: int
) -> None:
    job.submit().claim("worker-1").release().become(run=changed)
    job.claim("worker-2", run=3).beat().execute()
    assert broken(run) == {("I11", snoozes.RUN_STAYS), ("I2", leases.SAME_HOLDER)}


def test_job_that_is_stored_again_after_its_delete_begins_with_the_first_run(run: MadeUpRun) -> None:
    job = MadeUpJob(run).submit().run("worker-1").delete()
    job.submit().run("worker-2")
    assert broken(run) == set()


def test_start_in_time_is_fine_and_a_late_one_is_noticed(run: MadeUpRun) -> None:
    in_time, late = MadeUpJob(run, "a"), MadeUpJob(run, "b")
    for job in (in_time, late):
        job.submit()
        job.become(start_by=run.at + LEASE)
    in_time.run("worker-1")
    run.wait(2 * LEASE)
    assert broken(run) == {("I1", "a job ends in a terminal state")}
    late.run("worker-1")
    assert broken(run) == {("I12", start_limits.STARTED_IN_TIME)}


def test_unstarted_job_is_canceled_without_a_request_once_it_is_late_and_not_before(run: MadeUpRun) -> None:
    late, early = MadeUpJob(run, "a"), MadeUpJob(run, "b")
    late.submit()
    late.become(start_by=run.at + LEASE)
    run.wait(2 * LEASE)
    late.become(status="CANCELED", ready=False)
    assert verb_of(run.changes[-1]) == EXPIRE
    assert broken(run) == set()

    early.submit()
    early.become(start_by=run.at + LEASE).become(status="CANCELED", ready=False)
    assert broken(run) == {("I7", transitions.ASKED_FOR)}


def test_job_that_is_dead_after_five_lost_leases_is_fine(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit()
    for _ in range(4):
        job.claim("worker-1").beat().start().reap().promote()
    job.claim("worker-1").beat().start().reap()
    assert job.now.status == "DEAD_LETTERED"
    assert broken(run) == set()
    job.redrive().run("worker-2")
    assert broken(run) == set()


def test_sixth_lost_lease_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit()
    for count in range(1, 7):
        job.claim("worker-1").beat().start()
        run.freeze("worker-1")
        run.wait(2 * LEASE)
        job.become(
            "lease_expired", status="RETRYING", locked_by=None, lease_until=None, crashes=count, ready=True
        )
        run.thaw("worker-1")
    job.run("worker-2")
    assert broken(run) == {("I13", crashes.CRASHES_ARE_BOUNDED), ("I3", attempts.DIES_AT_THE_LIMIT)}


def test_lost_lease_that_is_not_counted_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start().reap().become(crashes=0)
    job.promote().run("worker-2")
    assert broken(run) == {("I13", crashes.CRASHES_ARE_COUNTED)}
