"""I31 and I32: the checker finds handlers stopped for no reason, and refused changes that were made."""

from __future__ import annotations

import pytest

from faults.changes import ScheduleChange
from faults.rules import refusals, unended
from faults.tests.made_up.jobs import LEASE, MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken
from faults.tests.made_up.workflows import MadeUpWorkflow

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


@pytest.mark.parametrize(("seconds", "is_noticed"), [(0.5, False), (2.0, True)])
def test_worker_that_may_not_have_the_answer_to_its_last_heartbeat_stops_the_handler(
    run: MadeUpRun, job: MadeUpJob, seconds: float, is_noticed: bool
) -> None:
    job.submit().claim(WORKER).beat().start()
    run.wait(LEASE - 100_000)
    job.become(lease_until=run.at + 8 * LEASE)
    run.wait(int(seconds * 1_000_000))
    job.end("cancelled").release().run(WORKER)
    assert (("I31", unended.STOPPED_WITH_ITS_CLAIM) in broken(run)) == is_noticed


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


# ---------------------------------------------------------------- I32


def edit(run: MadeUpRun, schedule_id: str) -> None:
    run.schedules.append(
        ScheduleChange(
            run.number(), run.number(), run.at, run.at, schedule_id, 1, False, 2, False, None, True,
            "interval", None, 1_000, None, "UTC", "one",
        )
    )  # fmt: skip
    run.wait()


def refused_edits(run: MadeUpRun) -> set[tuple[str, str]]:
    return {found for found in broken(run) if found[0] == "I32"}


@pytest.mark.parametrize(("how", "is_noticed"), [("refused", True), ("unknown", False), ("done", False)])
def test_refused_edit_that_was_made_is_noticed(run: MadeUpRun, how: str, is_noticed: bool) -> None:
    op = run.send("schedule_edit", schedule_id="s")
    edit(run, "s")
    run.answer("schedule_edit", op, how, reason="…")
    assert refused_edits(run) == ({("I32", refusals.CHANGED_NOTHING)} if is_noticed else set())


@pytest.mark.parametrize("name", ["schedule_pause", "schedule_create"])
def test_other_change_of_schedules_may_have_been_refused_because_of_its_own_success(
    run: MadeUpRun, name: str
) -> None:
    op = run.send(name, schedule_id="s")
    edit(run, "s")
    run.answer(name, op, "refused", reason="…")
    assert refused_edits(run) == set()


def test_edit_beside_a_refused_one_may_be_that_of_another_call(run: MadeUpRun) -> None:
    lost = run.send("schedule_pause", schedule_id="s")
    run.answer("schedule_pause", lost, "unknown", reason="…")
    op = run.send("schedule_edit", schedule_id="s")
    edit(run, "s")
    run.answer("schedule_edit", op, "refused", reason="…")
    assert refused_edits(run) == set()


@pytest.mark.parametrize(("how", "is_noticed"), [("alone", True), ("together", False), ("before", False)])
def test_job_that_comes_back_without_its_workflow_is_noticed(
    run: MadeUpRun, how: str, is_noticed: bool
) -> None:
    workflow = MadeUpWorkflow(run, {"a": []}).submit()
    job = workflow.jobs["a"]
    workflow.cancel()
    run.cancel_workflow(workflow.id)
    job.become(status="CANCELED", ready=False)
    workflow.redrive()
    if how == "before":
        run.cancel_workflow(workflow.id, is_canceled=False)
    job.become(status="PENDING", ready=True, finished_by=None, crashes=0, max_attempts=6)
    if how == "together":
        run.cancel_workflow(workflow.id, is_canceled=False, txid=run.changes[-1].txid)
    workflow.store_tables()
    assert refused_edits(run) == ({("I32", refusals.BACK_TOGETHER)} if is_noticed else set())
