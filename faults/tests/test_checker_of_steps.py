"""I21 to I23: the checker finds a stored step that runs again, a lost signal, and a wrong result."""

from __future__ import annotations

from typing import Any

import pytest

from faults.rules import results
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken


def invariants(run: MadeUpRun) -> set[str]:
    return {invariant for invariant, _ in broken(run)}


def write(run: MadeUpRun, job: MadeUpJob, what: str, /, **facts: object) -> None:
    run.write("worker-1", what, job_id=job.id, **facts)


def ran(run: MadeUpRun, job: MadeUpJob, number: int, worker: str = "worker-1") -> None:
    write(run, job, "step_ran", run=number, worker=worker, step="first")


def stored(run: MadeUpRun, job: MadeUpJob, number: int) -> None:
    write(run, job, "step_stored", run=number, step="first")


def taken(run: MadeUpRun, job: MadeUpJob, number: int, value: str | None, step: str = "go") -> None:
    write(run, job, "signal_taken", run=number, step=step, value=value)


def signal(run: MadeUpRun, job: MadeUpJob, value: str, how: str = "done") -> None:
    run.write("load-1", "signal", op=f"signal-{value}", job_id=job.id, value=value)
    run.write("load-1", f"signal_{how}", op=f"signal-{value}")


def test_step_that_was_not_stored_may_run_again(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    ran(run, job, 1)
    job.reap().promote().claim("worker-1").beat().start()
    ran(run, job, 2)
    stored(run, job, 2)
    assert "I21" not in invariants(run)


def test_stored_step_that_runs_in_a_later_attempt_is_found(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    ran(run, job, 1)
    stored(run, job, 1)
    job.reap().promote().claim("worker-1").beat().start()
    ran(run, job, 2)
    assert "I21" in invariants(run)


def test_worker_that_was_cut_off_may_run_a_step_that_another_has_stored(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim("worker-1").beat().start()
    job.reap().promote().claim("worker-2").beat().start()
    stored(run, job, 2)
    ran(run, job, 1)
    assert "I21" not in invariants(run)


def test_signal_that_two_steps_take_is_found(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    taken(run, job, 1, "a", "go")
    taken(run, job, 1, "a", "go#2")
    assert "I22" in invariants(run)


def test_step_whose_signal_changes_is_found(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    taken(run, job, 1, "a")
    taken(run, job, 2, "b")
    assert "I22" in invariants(run)


@pytest.mark.parametrize("how", ["done", "unknown"])
def test_acknowledged_signal_that_does_not_come_is_found(run: MadeUpRun, job: MadeUpJob, how: str) -> None:
    job.submit()
    signal(run, job, "a", how)
    job.claim("worker-1").beat().start()
    run.end_wait(job.id, 1)
    taken(run, job, 1, None)
    assert ("I22" in invariants(run)) == (how == "done")


def test_signal_that_is_acknowledged_during_the_attempt_and_does_not_come_is_found(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim("worker-1").beat().start()
    signal(run, job, "a")
    run.end_wait(job.id, 1)
    assert "I22" in invariants(run)


def test_signal_that_comes_after_the_end_of_the_wait_is_no_violation(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    run.end_wait(job.id, 1)
    signal(run, job, "a")
    taken(run, job, 1, None)
    assert "I22" not in invariants(run)


def test_end_of_a_wait_whose_worker_was_killed_holds_for_the_next_attempt(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim("worker-1").beat().start()
    run.end_wait(job.id, 1)
    job.reap()
    signal(run, job, "a")
    job.promote().claim("worker-1").beat().start()
    taken(run, job, 2, None)
    assert "I22" not in invariants(run)


@pytest.mark.parametrize("is_stored_later", [False, True])
def test_worker_that_decides_on_its_own_that_a_signal_did_not_come_is_found(
    run: MadeUpRun, job: MadeUpJob, is_stored_later: bool
) -> None:
    job.submit().claim("worker-1").beat().start()
    taken(run, job, 1, None)
    if is_stored_later:
        run.end_wait(job.id, 1)
    assert "I22" in invariants(run)


# ---------------------------------------------------------------- I23: results


def completed(run: MadeUpRun, returned: Any, stored: Any) -> MadeUpJob:
    job = MadeUpJob(run).submit().claim("worker-1").beat().start()
    job.end(**({} if returned is None else {"result": returned})).complete()
    if stored is not None:
        run.results[job.id] = stored
    return job


def awaited(run: MadeUpRun, job: MadeUpJob, how: str | None = "done", **answer: Any) -> None:
    op = run.send("await", job_id=job.id)
    run.answer("await", op, how, job_id=job.id, **answer)


@pytest.mark.parametrize("result", [[1, 2], None])
def test_result_that_is_stored_and_returned_to_waiters_passes(run: MadeUpRun, result: Any) -> None:
    job = completed(run, result, result)
    awaited(run, job, status="COMPLETED", result=result)
    awaited(run, job, "unknown", reason="ResultTimeout")
    awaited(run, job, None)
    assert broken(run) == set()


@pytest.mark.parametrize(("returned", "stored"), [([1], [2]), ([1], None), (None, [1])])
def test_stored_result_that_the_handler_did_not_return_is_noticed(
    run: MadeUpRun, returned: Any, stored: Any
) -> None:
    completed(run, returned, stored)
    assert broken(run) == {("I23", results.IS_THE_HANDLERS)}


def test_stored_result_of_another_attempt_is_noticed(run: MadeUpRun) -> None:
    job = MadeUpJob(run).submit().claim("worker-1").beat().start().reap().promote()
    job.claim("worker-2").beat().start().end(result=[2]).complete()
    late = {"job_id": job.id, "attempt": 1, "run": 1, "worker": "worker-1", "outcome": "completed"}
    run.write("worker-1", "ended", **late, result=[1])
    run.results[job.id] = [1]
    assert broken(run) == {("I23", results.IS_THE_HANDLERS)}


@pytest.mark.parametrize("got", [[2], None])
def test_waiter_that_got_another_result_is_noticed(run: MadeUpRun, got: Any) -> None:
    awaited(run, completed(run, [1], [1]), status="COMPLETED", result=got)
    assert broken(run) == {("I23", results.IS_STORED)}


def test_waiter_that_was_answered_before_the_job_had_finished_is_noticed(run: MadeUpRun) -> None:
    job = MadeUpJob(run).submit().claim("worker-1").beat().start()
    awaited(run, job, status="COMPLETED")
    run.wait(1_000_000)
    job.end().complete()
    assert ("I23", results.HAS_HAPPENED) in broken(run)


def test_job_that_a_waiter_saw_canceled_may_complete_later(run: MadeUpRun) -> None:
    job = MadeUpJob(run).submit().cancel()
    awaited(run, job, status="CANCELED")
    job.redrive().run("worker-1")
    assert broken(run) == set()


def test_result_of_a_deleted_job_cannot_be_compared(run: MadeUpRun) -> None:
    job = completed(run, [1], [1])
    awaited(run, job, status="COMPLETED", result=[1])
    job.delete()
    del run.results[job.id]
    assert broken(run) == set()
