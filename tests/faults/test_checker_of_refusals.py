"""I31: the checker finds handlers that are stopped for no reason."""

from __future__ import annotations

import pytest

from tests.faults.made_up.jobs import LEASE, MadeUpJob
from tests.faults.made_up.runs import MadeUpRun
from tests.faults.made_up.verdicts import broken
from tests.faults.rules import unended

WORKER = "worker-1.1"


@pytest.fixture
def run() -> MadeUpRun:
    run = MadeUpRun()
    run.write("nemesis", "began", target="pulsed-1.1")
    run.write("nemesis", "began", target=WORKER, worker_id=WORKER, replica="pulsed-1", concurrency=4)
    return run


# ---------------------------------------------------------------- I31


def test_handler_that_is_stopped_while_its_claim_holds_is_noticed(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).beat().start().end("cancelled").release().run(WORKER)
    assert ("I31", unended.STOPPED_WITH_ITS_CLAIM) in broken(run)


def test_handler_of_a_canceled_job_is_stopped_rightly(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).beat().start().cancel().end("cancelled")
    assert broken(run) == set()


@pytest.mark.parametrize(
    ("kind", "target"),
    [("freeze", WORKER), ("cut", "worker-1~pulsed"), ("halt", "postgres"), ("kill", "pulsed-1.1")],
)
def test_worker_that_may_have_lost_its_lease_stops_the_handler(
    run: MadeUpRun, job: MadeUpJob, kind: str, target: str
) -> None:
    job.submit().claim(WORKER).beat().start()
    run.write("nemesis", "fault", kind=kind, target=target)
    run.wait(LEASE)
    job.end("cancelled").release()
    run.write("nemesis", "healed", kind=kind, target=target)
    job.run(WORKER)
    assert ("I31", unended.STOPPED_WITH_ITS_CLAIM) not in broken(run)


def test_worker_that_hears_nothing_until_its_lease_is_nearly_over_stops_the_handler(
    run: MadeUpRun, job: MadeUpJob
) -> None:
    job.submit().claim(WORKER).beat().start()
    run.wait(LEASE - 200_000)
    job.end("cancelled").release().run(WORKER)
    assert ("I31", unended.STOPPED_WITH_ITS_CLAIM) not in broken(run)


def test_fault_of_another_worker_is_no_reason_to_stop(run: MadeUpRun, job: MadeUpJob) -> None:
    run.freeze("worker-2.1")
    job.submit().claim(WORKER).beat().start().end("cancelled").release().run(WORKER)
    assert ("I31", unended.STOPPED_WITH_ITS_CLAIM) in broken(run)


def test_handler_at_its_time_limit_is_stopped_rightly(run: MadeUpRun, job: MadeUpJob) -> None:
    job.submit().claim(WORKER).beat().start()
    for _ in range(9):
        run.wait(LEASE - 100_000)
        job.beat()
    job.end("cancelled").fail().promote().run(WORKER)
    assert ("I31", unended.STOPPED_WITH_ITS_CLAIM) not in broken(run)
