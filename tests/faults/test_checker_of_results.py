"""I23: the checker finds a result that is not the one that the handler returned, or that a waiter got."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.made_up.jobs import MadeUpJob
from tests.faults.made_up.runs import MadeUpRun
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import results


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


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
