"""I3 and I8: the checker finds an attempt that counts without a start, and starts under a pause."""

from __future__ import annotations

import pytest

from faults.checker import check
from faults.rules import attempts, pauses
from faults.tests.made_up.jobs import LEASE, MadeUpJob
from faults.tests.made_up.runs import STEP, MadeUpRun
from faults.tests.made_up.verdicts import broken

CONVERGENCE = int(pauses.CONVERGENCE_SECONDS * 1e6)
# Longer than a fault may come after the confirmation that it excuses.
LONG = 10 * LEASE


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


@pytest.mark.parametrize(
    ("max_attempts", "rule"), [(1, attempts.DIES_STARTED), (2, attempts.COUNTS_IF_STARTED)]
)
def test_confirmation_behind_a_slow_commit_is_no_start(run: MadeUpRun, max_attempts: int, rule: str) -> None:
    """The answer comes after the granted time: the worker does not start, and the attempt does not count."""
    began(run)
    run.write("nemesis", "fault", kind="slow commits", target="postgres", seconds=3.0)
    job = MadeUpJob(run, max_attempts=max_attempts, expect="any").submit().claim("worker-1").beat()
    job.expire()
    run.write("nemesis", "healed", kind="slow commits", target="postgres")
    if max_attempts > 1:
        job.promote().run("worker-1")
    assert ("I3", rule) in broken(run)


def test_confirmation_behind_a_slow_commit_that_is_taken_back_passes(run: MadeUpRun) -> None:
    began(run)
    run.write("nemesis", "fault", kind="slow commits", target="postgres", seconds=3.0)
    job = MadeUpJob(run, max_attempts=1, expect="any").submit().claim("worker-1").beat().release()
    run.write("nemesis", "healed", kind="slow commits", target="postgres")
    job.run("worker-1")
    assert broken(run) == set()


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


# ---------------------------------------------------------------- I8: claims


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
