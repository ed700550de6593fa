"""I8: the checker finds a claim under a pause, and excuses a statement that was already running."""

from __future__ import annotations

import pytest

from tests.faults.made_up.jobs import MadeUpJob
from tests.faults.made_up.runs import STEP, MadeUpRun
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import pauses


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    return MadeUpJob(run)


@pytest.mark.parametrize("topic", ["", "mail"])
def test_claim_while_paused_is_noticed(run: MadeUpRun, job: MadeUpJob, topic: str) -> None:
    job.submit()
    run.pause(topic)
    job.run("worker-1")
    assert broken(run) == {("I8", pauses.NOTHING_WHILE_PAUSED)}


def test_handover_while_paused_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    run.pause()
    job.submit(to="worker-1").execute()
    assert broken(run) == {("I8", pauses.NOTHING_WHILE_PAUSED)}


def test_claims_before_after_and_of_other_topics_pass(run: MadeUpRun, job: MadeUpJob) -> None:
    MadeUpJob(run, "before").submit().claim("worker-1").start()
    run.pause("mail")
    run.pause("mail")
    MadeUpJob(run, "other", topic="report").submit().run("worker-1")
    job.submit()
    run.resume("mail")
    job.run("worker-1")
    assert ("I8", pauses.NOTHING_WHILE_PAUSED) not in broken(run)


def test_statement_that_was_already_running_may_take_its_batch(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit()
    began = run.at
    run.pause()
    job.run("worker-1")
    run.changes[1] = run.changes[1]._replace(statement_at=began)
    assert broken(run) == set()


def test_claim_whose_statement_ends_after_the_resume_may_have_seen_it(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit()
    run.pause()
    began = run.at
    run.resume()
    job.run("worker-1")
    run.changes[1] = run.changes[1]._replace(statement_at=began)
    assert broken(run) == set()


@pytest.mark.parametrize("how", ["unknown", None])
def test_pause_whose_answer_is_lost_proves_no_violation(
    run: MadeUpRun, job: MadeUpJob, how: str | None
) -> None:
    """The moment of its commit is unknown: each claim may have begun before."""
    job.submit()
    run.pause(how=how)
    job.run("worker-1")
    assert broken(run) == set()


def test_each_pause_counts(run: MadeUpRun, job: MadeUpJob) -> None:
    for _ in range(3):
        run.pause()
        run.resume()
    job.submit()
    run.pause()
    job.run("worker-1")
    assert broken(run) == {("I8", pauses.NOTHING_WHILE_PAUSED)}


def test_pause_that_was_acknowledged_and_not_stored_is_noticed(run: MadeUpRun) -> None:
    run.pause(is_stored=False)
    assert broken(run) == {("I8", pauses.PAUSE_IS_KEPT)}


def test_pause_that_was_stored_long_before_is_not_the_one_that_was_asked_for(run: MadeUpRun) -> None:
    run.switch("", paused=True)
    run.wait(100 * STEP)
    run.pause(is_stored=False)
    assert broken(run) == {("I8", pauses.PAUSE_IS_KEPT)}
