"""I26: the checker finds rows that a handler stored twice, not at all, or without the end of its job."""

from __future__ import annotations

import dataclasses

import pytest

from faults.chaos import Result, Run
from faults.checker import check
from faults.evidence import Evidence
from faults.rules import effects, executions
from faults.tests.made_up import verdicts
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.runs import MadeUpRun

KEY = "wish-1"


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    """Its wish is committed with it."""
    job = MadeUpJob(run, KEY, topic="transfer", expect="transfer").submit()
    run.wish(KEY, job.id)
    return job


def broken(run: MadeUpRun) -> set[str]:
    assert all(invariant == "I26" for invariant, _ in verdicts.broken(run))
    return {rule for _, rule in verdicts.broken(run)}


def start(job: MadeUpJob, worker: str = "worker-1") -> MadeUpJob:
    return job.claim(worker).beat().start()


def transfer(run: MadeUpRun, job: MadeUpJob, number: int = 1, worker: str = "worker-1") -> None:
    run.transfer(KEY, job.id, number, worker)


def completing(run: MadeUpRun, job: MadeUpJob, number: int = 1, worker: str = "worker-1") -> None:
    run.write(worker, "completing", job_id=job.id, run=number, worker=worker)


def test_transfer_that_is_committed_with_the_completion_is_no_violation(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    start(job)
    completing(run, job)
    transfer(run, job)
    job.complete().end()
    assert not broken(run)


def test_worker_that_is_killed_after_its_commit_breaks_nothing(run: MadeUpRun, job: MadeUpJob) -> None:
    start(job)
    completing(run, job)
    transfer(run, job)
    job.complete()
    assert not broken(run)


def test_job_that_is_completed_by_a_handler_that_neither_returned_nor_completed_it_is_found(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    start(job)
    transfer(run, job)
    job.complete()
    assert verdicts.broken(run) == {("I4", executions.RAN_TO_ITS_END)}


def test_transfer_that_is_made_twice_is_found(run: MadeUpRun, job: MadeUpJob) -> None:
    start(job)
    transfer(run, job)
    start(job.reap().promote(), "worker-2")
    completing(run, job, 2, "worker-2")
    transfer(run, job, 2, "worker-2")
    job.complete().end()
    assert broken(run) == {effects.HAPPEN_ONCE, effects.SUMS_ARE_EXACT}
    verdict = check(run.evidence())
    assert (len(verdict.doubled), len(verdict.lost)) == (1, 0)


def test_completion_without_its_transfer_is_found(run: MadeUpRun, job: MadeUpJob) -> None:
    start(job)
    completing(run, job)
    job.complete().end()
    assert broken(run) == {effects.ARE_NOT_LOST, effects.SUMS_ARE_EXACT}
    verdict = check(run.evidence())
    assert (len(verdict.doubled), len(verdict.lost)) == (0, 1)


def test_transfer_of_a_job_that_was_given_up_is_found(run: MadeUpRun, job: MadeUpJob) -> None:
    start(job)
    transfer(run, job)
    job.end("RuntimeError").fail("discarded")
    assert effects.COME_WITH_THE_END in {rule for _, rule in verdicts.broken(run)}


def test_committed_wish_without_its_job_is_found(run: MadeUpRun) -> None:
    run.wish(KEY, "0190-gone")
    assert broken(run) == {effects.JOBS_ARE_NOT_LOST}


def test_job_of_a_wish_that_was_rolled_back_is_found(run: MadeUpRun) -> None:
    job = MadeUpJob(run, KEY, topic="transfer", expect="transfer").submit("unknown")
    start(job).end("RuntimeError")
    assert effects.ROLLED_BACK in {rule for _, rule in verdicts.broken(run)}


def test_transfer_of_a_wish_that_was_rolled_back_is_found(run: MadeUpRun) -> None:
    run.transfer(KEY, "0190-gone", 1, "worker-1")
    assert broken(run) == {effects.ROLLED_BACK, effects.SUMS_ARE_EXACT}


def test_balance_that_no_transfer_explains_is_found(run: MadeUpRun) -> None:
    evidence = run.evidence()
    balances = {**evidence.ledger.balances, 7: 1}
    ledger = dataclasses.replace(evidence.ledger, balances=balances)
    found = check(Evidence(evidence.events, evidence.audit, ledger)).violations
    assert [violation.rule for violation in found] == [effects.SUMS_ARE_EXACT]


@pytest.mark.parametrize("is_doubled", [False, True])
def test_control_is_good_only_if_it_finds_a_double(run: MadeUpRun, job: MadeUpJob, is_doubled: bool) -> None:
    start(job)
    for _ in range(1 + is_doubled):
        transfer(run, job)
    job.end().complete()
    control = Run(7, 60.0, 100.0, is_control=True)
    assert Result(control, [], check(run.evidence()), [], []).is_good == is_doubled
