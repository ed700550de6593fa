"""I20: the checker finds progress of others, progress that goes back or is lost, and attempts without it."""

from __future__ import annotations

import json

import pytest

from tests.faults.made_up.jobs import MadeUpJob
from tests.faults.made_up.runs import MadeUpRun
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import progress


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    return MadeUpJob(run, max_attempts=20)


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
