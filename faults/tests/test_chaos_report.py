"""The report of a run: how soon work resumed, what is wrong, how to repeat it."""

import json

import pytest

from faults.chaos import Result, Run
from faults.checker import check
from faults.recoveries import Recovery, orphan_seconds, recoveries
from faults.report import as_json, as_text
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.runs import STEP, MadeUpRun

# Each event of a made-up run happens this long after the one before it.
STEP_SECONDS = STEP / 1e6
ATTACHMENTS = {"worker-1.1": "pulsed-1", "worker-1.2": "pulsed-1", "worker-2.1": "pulsed-2"}


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


def healed(run: MadeUpRun, kind: str, target: str) -> None:
    """A fault that interrupts work everywhere."""
    for who in ATTACHMENTS:
        started(run, who)
    run.write("application-1.1", "submitted", op="…", job_id="…")
    run.write("nemesis", "fault", kind=kind, target=target)
    run.write("nemesis", "healed", kind=kind, target=target)


def started(run: MadeUpRun, who: str) -> None:
    run.write(who, "started", job_id="…", attempt=1, run=1, worker=who, topic="mail")


def result_of(run: MadeUpRun, failures: list[str] | None = None) -> Result:
    evidence = run.evidence()
    return Result(Run(7, 60.0, 100.0), [], check(evidence), recoveries(evidence, {}), failures or [])


@pytest.mark.parametrize(
    ("target", "who"),
    [
        ("worker-1.1", "worker-1.2"),  # the next one in its place
        ("worker-1~pulsed", "worker-1.2"),
        ("pulsed-1.4", "worker-1.2"),  # a worker that connects to it
        ("pulsed-1~postgres", "worker-1.2"),
        ("postgres", "worker-2.1"),  # any worker
    ],
)
def test_recovery_is_the_next_work_of_the_target(run: MadeUpRun, target: str, who: str) -> None:
    healed(run, "kill", target)
    if who != "worker-2.1":
        started(run, "worker-2.1")
    started(run, who)
    steps = 1 if who == "worker-2.1" else 2
    (recovery,) = recoveries(run.evidence(), ATTACHMENTS)
    (seconds,) = recovery.seconds
    assert seconds == pytest.approx(steps * STEP_SECONDS)


def test_fault_before_any_work_interrupts_nothing(run: MadeUpRun) -> None:
    run.write("nemesis", "fault", kind="kill", target="pulsed-1.1")
    run.write("nemesis", "healed", kind="kill", target="pulsed-1.1")
    started(run, "worker-1.1")
    (recovery,) = recoveries(run.evidence(), ATTACHMENTS)
    assert recovery.median is None


def test_application_is_back_with_its_next_acknowledged_submit(run: MadeUpRun) -> None:
    healed(run, "freeze", "application-1.2")
    started(run, "worker-2.1")
    run.write("application-1.2", "submitted", op="…", job_id="…")
    (recovery,) = recoveries(run.evidence(), ATTACHMENTS)
    (seconds,) = recovery.seconds
    assert seconds == pytest.approx(2 * STEP_SECONDS)


def test_faults_of_a_kind_are_reported_together(run: MadeUpRun) -> None:
    for worker in ("worker-1.1", "worker-2.1"):
        healed(run, "freeze", worker)
        started(run, worker)
    healed(run, "freeze", "worker-1.1")  # after which no work was left
    (recovery,) = recoveries(run.evidence(), ATTACHMENTS)
    assert recovery == Recovery("freeze", "worker", 3, recovery.seconds)
    assert len(recovery.seconds) == 2


def test_job_whose_worker_was_killed_is_followed_to_its_next_start(run: MadeUpRun) -> None:
    job = MadeUpJob(run).submit().claim("worker-1").start()
    kill = run.write("nemesis", "fault", kind="kill", target="worker-1")
    job.reap().promote().claim("worker-2").beat().start()
    (seconds,) = orphan_seconds(run.evidence())
    assert seconds == (run.events[-1].t - kill.t) / 1e9


def test_report_of_a_good_run_counts_no_loss(run: MadeUpRun) -> None:
    MadeUpJob(run).submit().run("worker-1")
    result = result_of(run)
    assert result.is_good
    assert "lost 0, doubled 0, illegal 0" in as_text(result, "/kept")
    assert "--seed" not in as_text(result, "/kept")


def test_broken_promise_is_reported_with_its_story_and_the_command_to_repeat_it(run: MadeUpRun) -> None:
    job = MadeUpJob(run).submit(is_stored=False)
    result = result_of(run)
    assert not result.is_good
    report = as_text(result, "/kept")
    assert "lost 1, doubled 0, illegal 0" in report
    assert job.id in report
    assert "/kept" in report
    assert "python3 dev.py chaos --seconds 60 --seed 7 --rate 100" in report


def test_process_that_misbehaves_fails_the_run(run: MadeUpRun) -> None:
    MadeUpJob(run).submit().run("worker-1")
    result = result_of(run, ["worker-1.1 ended by itself with 1."])
    assert not result.is_good
    assert "worker-1.1 ended by itself with 1." in as_text(result, "/kept")


def test_figures_are_fit_for_json(run: MadeUpRun) -> None:
    MadeUpJob(run).submit().run("worker-1")
    healed(run, "kill", "worker-1")
    figures = json.loads(json.dumps(as_json(result_of(run))))
    assert figures["counts"]["acked"] == 1
    assert figures["faults"][0]["count"] == 1
