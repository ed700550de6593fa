"""I9 and I10: the checker finds a job that a healthy worker loses, and a finished one that runs again."""

from __future__ import annotations

import pytest

from faults.disturbances import ALL_SERVERS, AWAY
from faults.rules import keeping, reaping
from faults.tests.made_up.jobs import LEASE, MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken

WORKER = "worker-1.1"


@pytest.fixture
def run() -> MadeUpRun:
    run = MadeUpRun()
    for server in ("pulsed-1", "pulsed-2"):
        run.write("nemesis", "began", target=f"{server}.1")
    run.write("nemesis", "began", target=WORKER, worker_id=WORKER, replica="pulsed-1", concurrency=4)
    return run


def fault(run: MadeUpRun, kind: str, target: str) -> None:
    run.write("nemesis", "fault", kind=kind, target=target)


def healed(run: MadeUpRun, kind: str, target: str) -> None:
    run.write("nemesis", "healed", kind=kind, target=target)


# ---------------------------------------------------------------- I9


@pytest.mark.parametrize("is_started", [True, False])
def test_healthy_worker_that_loses_a_job_is_noticed(run: MadeUpRun, job: MadeUpJob, is_started: bool) -> None:
    job.submit().claim(WORKER)
    if is_started:
        job.start()
    else:
        # A heartbeat before the start is no confirmation.
        job.become(lease_until=run.at + LEASE)
    job.expire().promote().run("worker-2")
    assert broken(run) == {("I9", keeping.HEALTHY_KEEPS)}


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("halt", "postgres"),
        ("locks", "postgres"),
        ("rows", "rows-1"),
        ("skew", WORKER),
        ("freeze", "worker-2.1"),
        ("freeze", "pulsed-2.1"),
        ("silence", "pulsed-2~postgres"),
        ("silence", "worker-2~pulsed"),
    ],
)
def test_fault_of_the_database_or_another_worker_is_no_excuse(
    run: MadeUpRun, job: MadeUpJob, kind: str, target: str
) -> None:
    job.submit().claim(WORKER).beat().start()
    fault(run, kind, target)
    job.expire().promote().run("worker-2")
    assert broken(run) == {("I9", keeping.HEALTHY_KEEPS)}


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("kill", WORKER),
        ("freeze", WORKER),
        ("failpoints", WORKER),
        ("silence", "worker-1~pulsed"),
        ("freeze", "pulsed-1.1"),
        ("silence", "pulsed-1~postgres"),
    ],
)
def test_worker_with_a_fault_may_lose_its_jobs(
    run: MadeUpRun, job: MadeUpJob, kind: str, target: str
) -> None:
    job.submit().claim(WORKER).beat().start()
    fault(run, kind, target)
    job.expire().promote().run("worker-2")
    assert broken(run) == set()


def test_fault_that_was_over_before_the_last_beat_is_no_excuse(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).start()
    fault(run, "silence", "worker-1~pulsed")
    healed(run, "silence", "worker-1~pulsed")
    job.beat().expire().promote().run("worker-2")
    assert broken(run) == {("I9", keeping.HEALTHY_KEEPS)}


@pytest.mark.parametrize(
    ("kind", "target"), [("locks", "postgres"), ("freeze", "pulsed-1.1"), ("silence", "worker-1~pulsed")]
)
def test_worker_that_stopped_a_handler_before_its_last_beat_was_stored_gave_the_job_up(
    run: MadeUpRun, job: MadeUpJob, kind: str, target: str
) -> None:
    job.submit().claim(WORKER).start()
    fault(run, kind, target)
    run.wait(LEASE)
    job.end("cancelled")
    healed(run, kind, target)
    job.beat().expire().promote().run("worker-2")
    assert broken(run) == set()


@pytest.mark.parametrize("target", ["", "rows-1"])
def test_worker_that_stopped_a_handler_without_a_fault_lost_the_job(
    run: MadeUpRun, job: MadeUpJob, target: str
) -> None:
    job.submit().claim(WORKER).start()
    run.wait(LEASE)
    job.end("cancelled")
    if target:
        fault(run, "rows", target)
    job.expire().promote().run("worker-2")
    assert broken(run) == {("I9", keeping.HEALTHY_KEEPS)}


def test_worker_belongs_to_the_server_that_it_connects_to(run: MadeUpRun, job: MadeUpJob) -> None:
    run.write("nemesis", "led", target=WORKER, replica="pulsed-2")
    job.submit().claim(WORKER).beat().start()
    fault(run, "freeze", "pulsed-1.1")
    job.expire().promote().run("worker-2")
    assert broken(run) == {("I9", keeping.HEALTHY_KEEPS)}


def test_stalled_worker_counts_as_frozen(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).beat().start().expire()
    run.write(WORKER, "stalled", seconds=0.5)
    job.promote().run("worker-2")
    assert broken(run) == set()


def test_job_that_never_reached_its_worker_is_not_lost_by_it(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).expire().promote().run("worker-2")
    assert broken(run) == set()


# ---------------------------------------------------------------- I1: a lease that expired


def test_lease_that_is_reaped_much_too_late_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    run.wait(60 * LEASE)
    job.submit().claim(WORKER).start()
    fault(run, "kill", WORKER)
    run.wait(20 * LEASE)
    job.expire().promote().run("worker-2")
    assert broken(run) == {("I1", reaping.REAPED_IN_TIME)}


def test_job_that_is_touched_after_its_lease_expired_may_be_reaped_as_late_as_others(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    run.wait(60 * LEASE)
    job.submit().claim(WORKER).start()
    fault(run, "kill", WORKER)
    run.wait(4 * LEASE)
    job.become().expire().promote().run("worker-2")
    assert broken(run) == set()


@pytest.mark.parametrize("target", ["postgres", "rows-2"])
def test_lease_may_be_reaped_late_while_the_database_is_disturbed(
    run: MadeUpRun, job: MadeUpJob, target: str
) -> None:
    run.wait(60 * LEASE)
    job.submit().claim(WORKER).start()
    fault(run, "kill", WORKER)
    fault(run, "halt", target)
    run.wait(20 * LEASE)
    job.expire().promote().run("worker-2")
    assert broken(run) == set()


def test_lease_may_be_reaped_late_while_every_server_is_disturbed(run: MadeUpRun, job: MadeUpJob) -> None:
    run.wait(60 * LEASE)
    job.submit().claim(WORKER).start()
    fault(run, "kill", WORKER)
    fault(run, "freeze", "pulsed-1.1")
    fault(run, "silence", "pulsed-2~postgres")
    run.wait(20 * LEASE)
    job.expire().promote().run("worker-2")
    assert broken(run) == set()


# ---------------------------------------------------------------- I10


def servers_away(run: MadeUpRun) -> None:
    fault(run, AWAY, ALL_SERVERS)
    for server in ("pulsed-1", "pulsed-2"):
        run.write("nemesis", "ending", target=f"{server}.1")
    run.wait(2 * LEASE)
    for server in ("pulsed-1", "pulsed-2"):
        run.write("nemesis", "began", target=f"{server}.2")
    healed(run, AWAY, ALL_SERVERS)


def test_job_that_finished_and_runs_again_after_an_absence_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).beat().start().end()
    servers_away(run)
    job.expire().promote().run("worker-2")
    assert broken(run) == {("I10", keeping.FINISHED_STAYS)}


def test_job_of_a_worker_that_was_frozen_past_its_lease_may_run_again(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).beat().start()
    fault(run, "freeze", WORKER)
    run.wait(2 * LEASE)
    healed(run, "freeze", WORKER)
    run.wait(LEASE)  # its report waits for a lock
    job.end().expire().promote().run("worker-2")
    assert broken(run) == set()


def test_job_that_had_not_finished_may_run_again_after_an_absence(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).beat().start()
    servers_away(run)
    job.expire().promote().run("worker-2")
    assert broken(run) == set()


def test_result_that_is_taken_after_an_absence_passes(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).beat().start().end()
    servers_away(run)
    job.complete()
    assert broken(run) == set()


@pytest.mark.parametrize(
    ("kind", "target"), [("kill", WORKER), ("freeze", WORKER), ("silence", "worker-1~pulsed")]
)
def test_result_that_was_lost_with_its_worker_is_made_again(
    run: MadeUpRun, job: MadeUpJob, kind: str, target: str
) -> None:
    job.submit().claim(WORKER).beat().start().end()
    servers_away(run)
    fault(run, kind, target)
    job.expire().promote().run("worker-2")
    assert broken(run) == set()


def test_worker_of_a_server_that_alone_is_away_may_lose_what_it_finished(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim(WORKER).beat().start().end()
    run.write("nemesis", "ending", target="pulsed-1.1")
    job.expire().promote().run("worker-2")
    assert broken(run) == set()
