"""I1 and I7: the checker finds lost and doubled jobs, and changes that are not legal."""

from __future__ import annotations

import pytest

from faults.checker import check
from faults.rules import ends, submits, transitions
from faults.tests.made_up.jobs import LEASE, MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken

# ---------------------------------------------------------------- where nothing is wrong


def test_legal_lives_pass(run: MadeUpRun) -> None:
    MadeUpJob(run, "plain").submit().run("worker-1")
    MadeUpJob(run, "handed over").submit(to="worker-1").execute()
    MadeUpJob(run, "later").send().insert(ready=False).answer().promote().run("worker-1")
    MadeUpJob(run, "failed once").submit().run("worker-1", "failed").promote().run("worker-2")
    MadeUpJob(run, "out of attempts", max_attempts=1).submit().run("worker-1", "failed")
    MadeUpJob(run, "reaped").submit().claim("worker-1").start().reap().promote().run("worker-2")
    MadeUpJob(run, "released").submit().claim("worker-1").release().run("worker-2")
    MadeUpJob(run, "snoozed").submit().claim("worker-1").snooze().promote().run("worker-1")
    MadeUpJob(run, "discarded", expect="discard").submit().run("worker-1", "discarded")
    MadeUpJob(run, "canceled while waiting").submit().cancel()
    MadeUpJob(run, "canceled while running").submit().claim("worker-1").start().cancel()
    MadeUpJob(run, "redriven").submit().cancel().redrive().run("worker-1")
    MadeUpJob(run, "deleted").submit().run("worker-1").delete()
    MadeUpJob(run, "killed its worker", max_attempts=1).submit().claim("worker-1").beat().start().reap()
    assert broken(run) == set()


def test_undelivered_attempt_is_not_counted(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1", "failed").promote().claim("worker-2").reap().promote().run("worker-3")
    assert job.now.attempts == 2
    assert broken(run) == set()


def test_beats_keep_a_lease_alive(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start()
    for _ in range(5):
        run.wait(LEASE // 2)
        job.beat()
    job.end().complete()
    assert broken(run) == set()


def test_report_counts_after_the_lease_expired_until_it_is_reaped(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start()
    run.wait(2 * LEASE)
    job.end().complete()
    assert broken(run) == set()


def test_zombie_may_run_beside_its_successor(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().reap().promote().claim("worker-2").beat()
    job.start()
    run.write("worker-1", "ended", job_id=job.id, attempt=1, run=1, worker="worker-1", outcome="completed")
    job.end().complete()
    assert broken(run) == set()


@pytest.mark.parametrize("how", ["unknown", None])
@pytest.mark.parametrize("is_stored", [True, False])
def test_submit_whose_answer_is_lost_may_be_stored_or_not(
    run: MadeUpRun, job: MadeUpJob, how: str | None, is_stored: bool
) -> None:
    job.submit(how, is_stored=is_stored)
    if is_stored:
        job.run("worker-1")
    assert broken(run) == set()


def test_submit_that_is_repeated_with_its_key_is_stored_once(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit("unknown").submit("done", is_stored=False).submit("refused", is_stored=False).run("worker-1")
    assert broken(run) == set()


def test_key_is_free_again_after_a_delete(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1").delete()
    MadeUpJob(run).submit().run("worker-1")
    assert broken(run) == set()


# ---------------------------------------------------------------- I1


def test_acknowledged_submit_that_is_not_there_is_lost(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit(is_stored=False)
    assert broken(run) == {("I1", submits.ACKNOWLEDGED_IS_STORED)}
    assert len(check(run.evidence()).lost) == 1


@pytest.mark.parametrize("how", ["done", "unknown", None])
def test_job_that_is_stored_twice_is_doubled(run: MadeUpRun, job: MadeUpJob, how: str | None) -> None:
    job.submit(how).run("worker-1")
    MadeUpJob(run).insert().run("worker-1")
    assert broken(run) == {("I1", submits.STORED_ONCE)}
    assert len(check(run.evidence()).doubled) == 1


def test_key_that_is_answered_with_two_jobs_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1")
    MadeUpJob(run).submit().run("worker-1")
    assert ("I1", submits.ONE_ANSWER) in broken(run)


def test_refused_submit_that_is_stored_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit("refused").run("worker-1")
    assert broken(run) == {("I1", submits.REFUSED_IS_NOT_STORED)}


def test_job_that_was_never_submitted_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.insert().run("worker-1")
    assert broken(run) == {("I1", submits.WAS_SUBMITTED)}


@pytest.mark.parametrize("how", ["done", "unknown"])
def test_job_that_never_ends_is_lost(run: MadeUpRun, job: MadeUpJob, how: str) -> None:
    job.submit(how).run("worker-1", "failed")
    assert broken(run) == {("I1", ends.JOBS_END)}


def test_row_that_vanishes_without_a_delete_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1").vanish()
    assert broken(run) == {("I1", ends.ROWS_STAY)}


def test_row_that_is_gone_without_a_trace_is_lost(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1")
    evidence = run.evidence()
    evidence.audit.statuses.clear()
    assert {violation.rule for violation in check(evidence).violations} == {ends.ROWS_STAY}


def test_row_that_is_not_as_its_last_change_left_it_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1")
    evidence = run.evidence()
    evidence.audit.statuses[job.id] = "CANCELED"
    evidence.audit.statuses["another"] = "COMPLETED"
    assert {violation.rule for violation in check(evidence).violations} == {ends.TABLE_IS_AUDITED}


@pytest.mark.parametrize(
    ("expect", "outcome"), [("complete", "discarded"), ("flaky", "discarded"), ("discard", "completed")]
)
def test_job_that_ends_otherwise_than_its_handler_says_is_noticed(
    run: MadeUpRun, expect: str, outcome: str
) -> None:
    MadeUpJob(run, expect=expect).submit().run("worker-1", outcome)
    assert broken(run) == {("I1", ends.ENDS_AS_EXPECTED)}


@pytest.mark.parametrize("name", ["cancel", "redrive", "delete"])
def test_request_that_was_acknowledged_and_not_carried_out_is_lost(
    run: MadeUpRun, job: MadeUpJob, name: str
) -> None:
    job.submit().run("worker-1")
    run.answer(name, run.send(name, job_id=job.id), job_id=job.id)
    assert broken(run) == {("I1", ends.DONE_IS_DONE)}


# ---------------------------------------------------------------- I7


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
