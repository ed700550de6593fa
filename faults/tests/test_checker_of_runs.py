"""I11 to I13 and I20: the checker finds snoozes that cost, runs out of order, and lost progress."""

from __future__ import annotations

import json

import pytest

from faults.changes import EXPIRE, verb_of
from faults.rules import attempts, crashes, leases, progress, snoozes, start_limits, transitions
from faults.tests.made_up.jobs import LEASE, MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken


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


# ---------------------------------------------------------------- I20: progress


def of(worker: str, claimed: int, number: int) -> str:
    return json.dumps([worker, claimed, number], separators=(",", ":"))


def started(run: MadeUpRun, job: MadeUpJob, found: str | None) -> None:
    """Start the handler with the progress that it found."""
    claim = {"job_id": job.id, "attempt": job.now.attempts, "run": job.now.run, "worker": job.worker}
    run.write(job.worker, "started", **claim, topic=job.topic, progress=found)


def fail(job: MadeUpJob) -> None:
    job.end("RuntimeError").fail().promote()


def test_progress_that_reaches_the_next_attempt_is_fine(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat()
    started(run, job, None)
    job.become(progress=of("worker-1", 1, 5)).become(progress=of("worker-1", 1, 9))
    fail(job)
    job.claim("worker-2").beat()
    started(run, job, of("worker-1", 1, 9))
    job.become(progress=of("worker-2", 2, 7))
    job.end().complete()
    assert broken(run) == set()


def test_progress_of_a_worker_that_lost_its_claim_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    fail(job)
    job.claim("worker-2").beat().become(progress=of("worker-1", 1, 5)).execute()
    assert broken(run) == {("I20", progress.OF_THE_HOLDER)}


def test_progress_of_a_run_before_of_the_same_worker_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    """The attempt is the same."""
    job.submit().claim("worker-1").start().release()
    job.claim("worker-1").beat().become(progress=of("worker-1", 1, 5)).execute()
    assert broken(run) == {("I20", progress.OF_THE_HOLDER)}


def test_progress_that_goes_back_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat()
    job.become(progress=of("worker-1", 1, 9)).become(progress=of("worker-1", 1, 5)).execute()
    assert broken(run) == {("I20", progress.GOES_ON)}


def test_progress_that_is_lost_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().become(progress=of("worker-1", 1, 9)).start()
    fail(job)
    job.become(progress=None).run("worker-2")
    assert broken(run) == {("I20", progress.GOES_ON)}


@pytest.mark.parametrize("found", [None, of("worker-1", 1, 5)])
def test_attempt_that_starts_with_other_progress_than_was_stored_is_noticed(
    run: MadeUpRun, job: MadeUpJob, found: str | None
) -> None:
    job.submit().claim("worker-1").beat().start()
    job.become(progress=of("worker-1", 1, 5)).become(progress=of("worker-1", 1, 9))
    fail(job)
    job.claim("worker-2").beat()
    started(run, job, found)
    job.end().complete()
    assert broken(run) == {("I20", progress.REACHES_THE_NEXT)}
