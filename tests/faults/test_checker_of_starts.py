"""I3 and I8: the checker finds an attempt that counts without a start, and a start under a pause."""

from __future__ import annotations

import pytest

from tests.faults.checker import check
from tests.faults.made_up.jobs import LEASE, MadeUpJob
from tests.faults.made_up.runs import STEP, MadeUpRun
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import attempts, pauses

CONVERGENCE = int(pauses.CONVERGENCE_SECONDS * 1e6)
# Longer than a fault may come after the confirmation that it excuses.
LONG = 10 * LEASE


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


@pytest.fixture
def job(run: MadeUpRun) -> MadeUpJob:
    return MadeUpJob(run)


def began(run: MadeUpRun, worker: str = "worker-1", concurrency: int = 2) -> None:
    facts = {"worker_id": worker, "replica": "pulsed-1", "concurrency": concurrency}
    run.write("nemesis", "began", target=f"{worker}.1", **facts)


def die(run: MadeUpRun, job: MadeUpJob) -> None:
    """Reap like an old server: the attempt counts, whether or not it was confirmed."""
    run.wait(2 * LEASE)
    job.become(
        "lease_expired",
        status="DEAD_LETTERED",
        finished_by="worker-1",
        locked_by=None,
        lease_until=None,
        crashes=int(job.now.delivered),
    )


# ---------------------------------------------------------------- I3


def test_attempt_that_was_started_counts(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat().start().reap().promote().run("worker-2")
    assert job.now.attempts == 2
    assert broken(run) == set()


def test_attempt_that_never_started_and_is_returned_passes(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").reap().promote().run("worker-2")
    assert job.now.attempts == 1
    assert broken(run) == set()


def test_job_that_dies_although_it_never_started_is_noticed(run: MadeUpRun) -> None:
    job = MadeUpJob(run, max_attempts=1).submit().claim("worker-1").become(delivered=True)
    run.changes[-2] = run.changes[-2]._replace(new=job.now)
    del run.changes[-1]
    run.freeze("worker-1")
    die(run, job)
    assert broken(run) == {("I3", attempts.DIES_STARTED)}


def test_retry_that_counts_although_it_never_started_is_noticed(run: MadeUpRun) -> None:
    job = MadeUpJob(run, max_attempts=2).submit().run("worker-2", "failed").promote().claim("worker-1").beat()
    run.wait(LONG)
    job.beat().reap()
    assert broken(run) == {("I3", attempts.COUNTS_IF_STARTED)}


def test_start_of_an_earlier_run_of_the_same_attempt_does_not_count(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").start().release().claim("worker-1").beat()
    run.wait(LONG)
    job.beat().reap().promote().run("worker-2")
    assert broken(run) == {("I3", attempts.COUNTS_IF_STARTED)}


@pytest.mark.parametrize(
    ("kind", "target"),
    [("kill", "worker-1.1"), ("freeze", "worker-1.1"), ("lost answers", "worker-1~pulsed")],
)
def test_worker_with_a_fault_right_after_the_confirmation_is_excused(
    run: MadeUpRun, kind: str, target: str
) -> None:
    began(run)
    job = MadeUpJob(run, max_attempts=1).submit().claim("worker-1").beat()
    run.write("nemesis", "fault", kind=kind, target=target)
    job.expire()
    assert broken(run) == set()
    assert check(run.evidence()).counts["excused"] == 1


def test_confirmation_whose_answer_came_after_the_kill_is_excused(run: MadeUpRun) -> None:
    began(run)
    job = MadeUpJob(run, max_attempts=1).submit().claim("worker-1")
    run.write("nemesis", "ending", target="worker-1.1")
    job.beat().expire()
    assert broken(run) == set()


def test_one_kill_excuses_no_more_than_the_worker_starts_at_once(run: MadeUpRun) -> None:
    began(run, concurrency=2)
    jobs = [MadeUpJob(run, f"k-{n}", max_attempts=1).submit().claim("worker-1").beat() for n in range(3)]
    run.write("nemesis", "fault", kind="kill", target="worker-1.1")
    for job in jobs:
        job.expire()
    verdict = check(run.evidence())
    assert [violation.rule for violation in verdict.violations] == [attempts.DIES_STARTED]
    assert verdict.counts["excused"] == 2


def test_kill_long_after_the_confirmation_excuses_nothing(run: MadeUpRun) -> None:
    began(run)
    job = MadeUpJob(run, max_attempts=1).submit().claim("worker-1").beat()
    run.wait(LONG)
    job.beat()
    run.write("nemesis", "fault", kind="kill", target="worker-1.1")
    job.expire()
    assert broken(run) == {("I3", attempts.DIES_STARTED)}


def test_kill_right_after_the_row_was_locked_excuses_what_could_not_be_released(run: MadeUpRun) -> None:
    began(run)
    job = MadeUpJob(run, max_attempts=1).submit().claim("worker-1").beat()
    run.write("nemesis", "fault", kind="rows", target="rows")
    run.wait(LONG)
    run.write("nemesis", "healed", kind="rows", target="rows")
    run.write("nemesis", "fault", kind="kill", target="worker-1.1")
    die(run, job)
    assert broken(run) == set()


def test_kill_of_another_excuses_nothing(run: MadeUpRun) -> None:
    job = MadeUpJob(run, max_attempts=1).submit().claim("worker-1").beat()
    run.write("nemesis", "fault", kind="kill", target="worker-2")
    job.expire()
    assert ("I3", attempts.DIES_STARTED) in broken(run)


# ---------------------------------------------------------------- I8


@pytest.mark.parametrize("topic", ["", "mail"])
def test_start_later_than_the_convergence_is_noticed(run: MadeUpRun, job: MadeUpJob, topic: str) -> None:
    job.submit().claim("worker-1").beat()
    run.pause(topic)
    run.wait(CONVERGENCE)
    job.beat().execute()
    assert broken(run) == {("I8", pauses.NO_START_WHILE_PAUSED)}


def test_start_within_the_convergence_passes(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat()
    run.pause()
    run.wait(CONVERGENCE - 10 * STEP)
    job.execute()
    assert broken(run) == set()


def test_start_after_the_resume_passes(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat()
    run.pause()
    run.wait(CONVERGENCE)
    job.beat()
    run.resume()
    job.execute()
    assert broken(run) == set()


def test_start_of_another_topic_passes(run: MadeUpRun) -> None:
    job = MadeUpJob(run, topic="report").submit().claim("worker-1").beat()
    run.pause("mail")
    run.wait(CONVERGENCE)
    job.beat().execute()
    assert broken(run) == set()


def test_frozen_worker_has_its_convergence_after_the_thaw(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat()
    run.freeze("worker-1")
    run.pause()
    run.wait(CONVERGENCE)
    run.thaw("worker-1")
    job.beat().execute()
    assert broken(run) == set()


def test_frozen_worker_has_no_more_than_its_convergence(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim("worker-1").beat()
    run.pause()
    run.freeze("worker-1")
    run.wait(CONVERGENCE // 2)
    run.thaw("worker-1")
    run.wait(CONVERGENCE)
    job.beat().execute()
    assert broken(run) == {("I8", pauses.NO_START_WHILE_PAUSED)}
