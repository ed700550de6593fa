"""I7: the checker finds changes that are no arrow of the lifecycle, and changes without a request."""

from __future__ import annotations

import pytest

from tests.faults.made_up.jobs import MadeUpJob
from tests.faults.made_up.runs import MadeUpRun
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import transitions


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    return MadeUpJob(run)


def test_illegal_arrows_are_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1").become(status="PENDING", ready=True, finished_by=None).cancel()
    assert broken(run) == {("I7", transitions.LEGAL_ARROW)}


def test_job_that_begins_at_its_end_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1")
    run.changes[0] = run.changes[0]._replace(new=run.changes[-1].new)
    assert ("I7", transitions.LEGAL_ARROW) in broken(run)


def test_change_missing_from_the_audit_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1", "failed").promote().run("worker-1")
    del run.changes[4]
    assert broken(run) == {("I7", transitions.UNBROKEN)}


@pytest.mark.parametrize("missing", [{"locked_by": None}, {"lease_until": None}])
def test_running_without_a_holder_or_a_lease_is_noticed(
    run: MadeUpRun, job: MadeUpJob, missing: dict[str, None]
) -> None:
    job.submit().claim("worker-1").become(**missing).cancel()
    assert ("I7", transitions.RUNNING_HAS_LEASE) in broken(run)


def test_lease_of_a_job_that_does_not_run_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().become(locked_by="worker-1").become(locked_by=None).run("worker-1")
    assert ("I7", transitions.RUNNING_HAS_LEASE) in broken(run)


def test_job_that_is_ready_although_it_does_not_wait_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1").become(ready=True)
    assert broken(run) == {("I7", transitions.READY_WAITS)}


def test_claim_of_a_job_that_was_not_ready_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1", "failed").run("worker-1")
    assert broken(run) == {("I7", transitions.CLAIMED_WAS_READY)}


def test_delete_of_a_job_that_is_not_finished_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().delete()
    assert broken(run) == {("I7", transitions.FINISHED_IS_DELETED)}


def test_second_insert_of_the_same_job_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1").insert().run("worker-1")
    run.changes[5] = run.changes[5]._replace(old=None)
    assert ("I7", transitions.UNBROKEN) in broken(run)


def test_cancel_without_a_request_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().become(status="CANCELED", ready=False)
    assert broken(run) == {("I7", transitions.ASKED_FOR)}


def test_redrive_without_a_request_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().cancel().become(status="PENDING", ready=True).run("worker-1")
    assert broken(run) == {("I7", transitions.ASKED_FOR)}
