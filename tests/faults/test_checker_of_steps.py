"""I21 and I22: the checker finds a stored step that runs again, and a signal that is lost or doubled."""

from __future__ import annotations

import pytest

from tests.faults.made_up import verdicts
from tests.faults.made_up.jobs import MadeUpJob
from tests.faults.made_up.runs import MadeUpRun


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    return MadeUpJob(run)


def broken(run: MadeUpRun) -> set[str]:
    return {invariant for invariant, _ in verdicts.broken(run)}


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
    assert "I21" not in broken(run)


def test_stored_step_that_runs_in_a_later_attempt_is_found(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    ran(run, job, 1)
    stored(run, job, 1)
    job.reap().promote().claim("worker-1").beat().start()
    ran(run, job, 2)
    assert "I21" in broken(run)


def test_worker_that_was_cut_off_may_run_a_step_that_another_has_stored(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim("worker-1").beat().start()
    job.reap().promote().claim("worker-2").beat().start()
    stored(run, job, 2)
    ran(run, job, 1)
    assert "I21" not in broken(run)


def test_signal_that_two_steps_take_is_found(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    taken(run, job, 1, "a", "go")
    taken(run, job, 1, "a", "go#2")
    assert "I22" in broken(run)


def test_step_whose_signal_changes_is_found(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    taken(run, job, 1, "a")
    taken(run, job, 2, "b")
    assert "I22" in broken(run)


@pytest.mark.parametrize("how", ["done", "unknown"])
def test_acknowledged_signal_that_does_not_come_is_found(run: MadeUpRun, job: MadeUpJob, how: str) -> None:
    job.submit()
    signal(run, job, "a", how)
    job.claim("worker-1").beat().start()
    run.end_wait(job.id, 1)
    taken(run, job, 1, None)
    assert ("I22" in broken(run)) == (how == "done")


def test_signal_that_is_acknowledged_during_the_attempt_and_does_not_come_is_found(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim("worker-1").beat().start()
    signal(run, job, "a")
    run.end_wait(job.id, 1)
    assert "I22" in broken(run)


def test_signal_that_comes_after_the_end_of_the_wait_is_no_violation(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start()
    run.end_wait(job.id, 1)
    signal(run, job, "a")
    taken(run, job, 1, None)
    assert "I22" not in broken(run)


def test_end_of_a_wait_whose_worker_was_killed_holds_for_the_next_attempt(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim("worker-1").beat().start()
    run.end_wait(job.id, 1)
    job.reap()
    signal(run, job, "a")
    job.promote().claim("worker-1").beat().start()
    taken(run, job, 2, None)
    assert "I22" not in broken(run)


@pytest.mark.parametrize("is_stored_later", [False, True])
def test_worker_that_decides_on_its_own_that_a_signal_did_not_come_is_found(
    run: MadeUpRun, job: MadeUpJob, is_stored_later: bool
) -> None:
    job.submit().claim("worker-1").beat().start()
    taken(run, job, 1, None)
    if is_stored_later:
        run.end_wait(job.id, 1)
    assert "I22" in broken(run)
