"""I25: the checker finds a ready job that no worker claims, and excuses what none could have claimed."""

from __future__ import annotations

import pytest

from faults.lateness import Lateness, lateness
from faults.rules import moving
from faults.spans import SECOND
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.limits import MadeUpLimits
from faults.tests.made_up.runs import STEP, MadeUpRun
from faults.tests.made_up.verdicts import broken
from faults.tests.test_checker_of_order import began

BROKEN = ("I25", moving.CLAIMED_IN_TIME)


@pytest.fixture
def run() -> MadeUpRun:
    run = MadeUpRun()
    began(run, "worker-1", "pulsed-1", ["mail"])
    return run


def test_job_that_waits_while_its_worker_is_idle_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit()
    run.wait(11 * SECOND)
    job.run("worker-1")
    assert broken(run) == {BROKEN}


def test_job_that_is_claimed_in_time_has_not_waited(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit()
    run.wait(9 * SECOND)
    job.run("worker-1")
    assert broken(run) == set()


def test_claims_without_a_start_are_no_progress(run: MadeUpRun, job: MadeUpJob) -> None:
    began(run, "worker-2", "pulsed-1", ["mail"], concurrency=2)
    job.submit()
    release(run, job, "worker-2", 15)
    assert broken(run) == {BROKEN}


def release(run: MadeUpRun, job: MadeUpJob, worker: str, times: int) -> None:
    """The job is claimed each second, and released half a second later."""
    for _ in range(times):
        run.wait(SECOND // 2)
        job.claim(worker).beat()
        run.wait(SECOND // 2)
        job.release()
    job.run(worker)


def test_job_that_is_released_again_and_again_by_a_busy_worker_is_noticed(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit()
    release(run, job, "worker-1", 15)
    assert broken(run) == {("I25", moving.CLAIMED_TO_START)}


def test_worker_with_a_fault_may_release_again_and_again(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit()
    run.write("nemesis", "fault", kind="delay", target="worker-1~pulsed")
    release(run, job, "worker-1", 15)
    assert broken(run) == set()


def test_job_may_wait_for_a_free_slot(run: MadeUpRun, job: MadeUpJob) -> None:
    busy = MadeUpJob(run, "busy").submit().claim("worker-1").beat().start()
    job.submit()
    for _ in range(30):
        run.wait(SECOND // 2)
        busy.beat()
    busy.end().complete()
    job.run("worker-1")
    assert broken(run) == set()


def test_handler_that_outlives_its_claim_takes_a_slot(run: MadeUpRun, job: MadeUpJob) -> None:
    zombie = MadeUpJob(run, "zombie").submit().claim("worker-1").beat().start()
    zombie.cancel()
    job.submit()
    run.wait(11 * SECOND)
    zombie.end("cancelled")
    job.run("worker-1")
    assert broken(run) == set()


def test_job_that_no_connected_worker_wants_may_wait(run: MadeUpRun) -> None:
    job = MadeUpJob(run, topic="other").submit()
    run.wait(11 * SECOND)
    job.run("worker-1")
    assert broken(run) == set()


def test_job_may_wait_while_its_worker_is_gone(run: MadeUpRun, job: MadeUpJob) -> None:
    run.write("nemesis", "ending", target="worker-1")
    job.submit()
    run.wait(30 * SECOND)
    began(run, "worker-2", "pulsed-1", ["mail"])
    job.run("worker-2")
    assert broken(run) == set()


@pytest.mark.parametrize(
    "target", ["postgres", "pulsed-1", "worker-1", "worker-1~pulsed", "pulsed-1~postgres"]
)
def test_job_may_wait_for_the_end_of_a_fault(run: MadeUpRun, job: MadeUpJob, target: str) -> None:
    job.submit()
    run.write("nemesis", "fault", kind="silence", target=target)
    run.wait(20 * SECOND)
    run.write("nemesis", "healed", kind="silence", target=target)
    job.run("worker-1")
    assert broken(run) == set()


def test_fault_that_was_over_long_ago_excuses_nothing(run: MadeUpRun, job: MadeUpJob) -> None:
    run.write("nemesis", "fault", kind="silence", target="postgres")
    run.wait(SECOND)
    run.write("nemesis", "healed", kind="silence", target="postgres")
    job.submit()
    run.wait(25 * SECOND)
    job.run("worker-1")
    assert broken(run) == {BROKEN}


@pytest.mark.parametrize(("seconds", "expected"), [(13.0, set()), (15.0, {BROKEN})])
def test_slow_database_delays_the_bound_by_two_statements(
    run: MadeUpRun, job: MadeUpJob, seconds: float, expected: set[tuple[str, str]]
) -> None:
    run.write("nemesis", "fault", kind="slow", target="postgres", seconds=2.0)
    job.submit()
    run.wait(int(seconds * SECOND))
    job.run("worker-1")
    assert broken(run) == expected


def test_job_may_wait_while_the_database_is_slower_than_promised(run: MadeUpRun, job: MadeUpJob) -> None:
    run.write("nemesis", "fault", kind="slow", target="postgres", seconds=3.0, too_slow=True)
    job.submit()
    run.wait(60 * SECOND)
    job.run("worker-1")
    assert broken(run) == set()


def test_job_may_wait_for_the_end_of_a_pause(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit()
    run.pause("mail")
    run.wait(20 * SECOND)
    run.resume("mail")
    job.run("worker-1")
    assert broken(run) == set()


def test_job_of_a_topic_with_limits_may_wait(run: MadeUpRun, job: MadeUpJob) -> None:
    MadeUpLimits(run).limit("mail", limit=1)
    job.submit()
    run.wait(20 * SECOND)
    job.run("worker-1")
    assert broken(run) == set()


def test_job_whose_row_is_locked_may_wait(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit()
    run.write("nemesis", "fault", kind="rows", target="rows-1", ids=[job.id])
    run.wait(20 * SECOND)
    run.write("nemesis", "healed", kind="rows", target="rows-1")
    job.run("worker-1")
    assert broken(run) == set()


def test_lateness_is_counted_by_the_kind_of_job(run: MadeUpRun) -> None:
    retried = MadeUpJob(run, "retried").submit().run("worker-1", "failed").promote()
    run.wait(SECOND)
    retried.run("worker-1")
    MadeUpJob(run, "delayed").send().insert(ready=False).answer().promote().run("worker-1")
    MadeUpJob(run, "canceled").submit().cancel()
    late = {each.kind: each for each in lateness(run.evidence())}
    assert late.keys() == {"delayed", "new", "retry"}
    assert late["new"].count == 2
    assert late["retry"] == Lateness("retry", 1, late["retry"].longest, late["retry"].longest)
    # Ready, claimed and confirmed: each 10 ms after the other.
    assert late["retry"].longest == pytest.approx((SECOND + 3 * STEP) / SECOND, abs=1e-3)
    assert late["delayed"].longest == pytest.approx(3 * STEP / SECOND, abs=1e-3)
