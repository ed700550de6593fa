"""The checker finds what is wrong with a job's life, and nothing where nothing is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.checker import check
from tests.faults.made_up.jobs import LEASE, MadeUpJob
from tests.faults.made_up.runs import STEP, MadeUpRun
from tests.faults.rules import attempts, ends, executions, leases, submits, transitions


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    return MadeUpJob(run)


def broken(run: MadeUpRun) -> set[tuple[str, str]]:
    """The invariants and rules that the checker says were broken."""
    return {(violation.invariant, violation.rule) for violation in check(run.evidence()).violations}


# ---------------------------------------------------------------- where nothing is wrong


def test_legal_lives_pass(run: MadeUpRun) -> None:
    MadeUpJob(run, "plain").submit().run("worker-1")
    MadeUpJob(run, "handed over").submit(to="worker-1").execute()
    MadeUpJob(run, "later").send().insert(ready=False).answer().promote().run("worker-1")
    MadeUpJob(run, "failed once").submit().run("worker-1", "failed").promote().run("worker-2")
    MadeUpJob(run, "out of attempts", max_attempts=1).submit().run("worker-1", "failed")
    MadeUpJob(run, "reaped").submit().claim("worker-1").start().reap().promote().run("worker-2")
    MadeUpJob(run, "released").submit().claim("worker-1").release().run("worker-2")
    MadeUpJob(run, "discarded", expect="discard").submit().run("worker-1", "discarded")
    MadeUpJob(run, "cancelled while waiting").submit().cancel()
    MadeUpJob(run, "cancelled while running").submit().claim("worker-1").start().cancel()
    MadeUpJob(run, "redriven").submit().cancel().redrive().run("worker-1")
    MadeUpJob(run, "deleted").submit().run("worker-1").delete()
    MadeUpJob(run, "killed its worker", max_attempts=1).submit().claim("worker-1").beat().start().reap()
    assert broken(run) == set()


def test_undelivered_attempt_is_made_again_under_its_number(run: MadeUpRun, job: MadeUpJob) -> None:
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


def test_report_of_a_lapsed_lease_counts_while_nobody_has_reaped_it(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start()
    run.wait(2 * LEASE)
    job.end().complete()
    assert broken(run) == set()


def test_zombie_may_run_beside_its_successor(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().reap().promote().claim("worker-2").beat()
    job.start()
    run.write("worker-1", "ended", job_id=job.id, attempt=1, worker="worker-1", outcome="completed")
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


def test_job_that_nobody_submitted_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.insert().run("worker-1")
    assert broken(run) == {("I1", submits.SOMEBODY_ASKED)}


@pytest.mark.parametrize("how", ["done", "unknown"])
def test_job_that_never_ends_is_lost(run: MadeUpRun, job: MadeUpJob, how: str) -> None:
    job.submit(how).run("worker-1", "failed")
    assert broken(run) == {("I1", ends.JOBS_END)}


def test_row_that_nobody_deleted_must_stay(run: MadeUpRun, job: MadeUpJob) -> None:
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


# ---------------------------------------------------------------- I2


def test_lease_that_is_given_while_another_is_valid_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    run.freeze("worker-1")
    job.become("lease_expired", status="RETRYING", locked_by=None, lease_until=None, ready=True)
    job.run("worker-2")
    assert broken(run) == {("I2", leases.NOT_BEFORE_IT_LAPSED), ("I2", leases.ONE_LEASE)}


@pytest.mark.parametrize("change", [{"locked_by": "worker-2"}, {"locked_by": "worker-2", "lease_until": 1}])
def test_lease_that_passes_to_another_holder_is_noticed(
    run: MadeUpRun, job: MadeUpJob, change: dict[str, Any]
) -> None:
    job.submit().claim("worker-1").start().become(**change)
    job.start("worker-2").cancel()
    assert ("I2", leases.SAME_HOLDER) in broken(run)


def test_report_that_is_taken_from_somebody_else_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().end()
    job.become(status="COMPLETED", finished_by="worker-2", locked_by=None, lease_until=None)
    assert broken(run) == {("I2", leases.REPORT_OF_HOLDER)}


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_report_of_a_zombie_that_is_taken_for_its_successors_is_noticed(
    run: MadeUpRun, job: MadeUpJob, outcome: str
) -> None:
    """The row looks well, but worker-2 never started what it is said to have ended."""
    job.submit().claim("worker-1").start().end().reap().promote().claim("worker-2").beat()
    if outcome == "completed":
        job.complete()
    else:
        job.fail().promote().run("worker-3")
    assert broken(run) == {("I2", leases.HOLDER_STARTED)}


def test_report_of_a_zombie_that_is_taken_while_its_successor_runs_is_noticed(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    """The row looks well again, and worker-2 has started; but it is still at it."""
    job.submit().claim("worker-1").start().reap().promote().claim("worker-2").beat().start()
    run.write("worker-1", "ended", job_id=job.id, attempt=1, worker="worker-1", outcome="completed")
    job.complete().end()
    assert broken(run) == {("I4", executions.RAN_TO_ITS_END)}


def test_failure_of_a_zombie_that_is_taken_while_its_successor_runs_is_noticed(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim("worker-1").start().reap().promote().claim("worker-2").beat().start()
    run.write("worker-1", "ended", job_id=job.id, attempt=1, worker="worker-1", outcome="failed")
    job.fail().end().promote().run("worker-3")
    assert broken(run) == {("I2", leases.HOLDER_FAILED)}


def test_success_that_is_taken_for_a_failure_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().end("completed").fail().promote().run("worker-2")
    assert broken(run) == {("I2", leases.HOLDER_FAILED)}


@pytest.mark.parametrize(("worker", "attempt"), [("worker-2", 1), ("worker-1", 2)])
def test_handler_that_starts_without_a_claim_is_noticed(
    run: MadeUpRun, job: MadeUpJob, worker: str, attempt: int
) -> None:
    job.submit().claim("worker-1").start().start(worker, attempt).end().complete()
    assert broken(run) == {("I2", leases.STARTED_UNDER_LEASE)}


def test_claim_that_starts_two_handlers_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().start().end().complete()
    assert broken(run) == {("I2", leases.STARTED_ONCE)}


def test_attempt_that_was_given_back_may_start_again_at_the_same_worker(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim("worker-1").start().release().run("worker-1")
    assert broken(run) == set()


def test_handler_that_starts_for_a_job_that_is_not_there_is_noticed(run: MadeUpRun) -> None:
    run.write("worker-1", "started", job_id="none", attempt=1, worker="worker-1", topic="mail")
    assert broken(run) == {("I2", leases.STARTED_UNDER_LEASE)}


# ---------------------------------------------------------------- I3


def test_attempt_past_the_limit_is_noticed(run: MadeUpRun) -> None:
    job = MadeUpJob(run, max_attempts=1).submit().claim("worker-1").beat().start()
    run.freeze("worker-1")
    run.wait(2 * LEASE)
    job.become("lease_expired", status="RETRYING", locked_by=None, lease_until=None, ready=True)
    job.run("worker-2")
    assert broken(run) == {("I3", attempts.WITHIN_LIMIT), ("I3", attempts.DIES_AT_THE_LIMIT)}


def test_attempt_that_is_not_counted_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1", "failed").promote()
    lease = run.at + LEASE
    job.worker = "worker-2"
    job.become(status="RUNNING", locked_by="worker-2", lease_until=lease, ready=False).execute()
    assert broken(run) == {("I3", attempts.COUNTED)}


def test_attempt_that_is_not_given_back_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
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
    """The clocks are known to 50 µs: what lies within them is not held against anybody."""
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


# ---------------------------------------------------------------- I7


def test_illegal_arrows_are_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1").become(status="PENDING", ready=True, finished_by=None).cancel()
    assert broken(run) == {("I7", transitions.LEGAL_ARROW)}


def test_job_that_begins_at_its_end_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().run("worker-1")
    run.changes[0] = run.changes[0]._replace(new=run.changes[-1].new)
    assert ("I7", transitions.LEGAL_ARROW) in broken(run)


def test_change_that_nobody_saw_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
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


def test_cancel_that_nobody_asked_for_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().become(status="CANCELED", ready=False)
    assert broken(run) == {("I7", transitions.ASKED_FOR)}


def test_redrive_that_nobody_asked_for_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().cancel().become(status="PENDING", ready=True).run("worker-1")
    assert broken(run) == {("I7", transitions.ASKED_FOR)}
