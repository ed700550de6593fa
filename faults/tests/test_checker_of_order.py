"""I24: the checker finds a job that was passed by a worse one, and excuses what could not be claimed."""

from __future__ import annotations

from typing import Any

import pytest

from faults.rules import order
from faults.spans import SECOND
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.limits import MadeUpLimits
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken

BROKEN = ("I24", order.BEST_FIRST)
LATE = ("I25", order.EARLIEST_FIRST)


@pytest.fixture
def run() -> MadeUpRun:
    run = MadeUpRun()
    began(run, "worker-1", "pulsed-1", ["mail", "report"])
    return run


def began(run: MadeUpRun, worker: str, server: str, topics: list[str], concurrency: int = 1) -> None:
    """A server, and a worker that has claimed once."""
    run.write("nemesis", "began", target=server)
    facts = {"worker_id": worker, "replica": server, "concurrency": concurrency, "topics": topics}
    run.write("nemesis", "began", target=worker, **facts)
    MadeUpJob(run, f"first of {worker}", topic=topics[0]).submit().run(worker)


def job(run: MadeUpRun, key: str, priority: int = 0, **options: Any) -> MadeUpJob:
    job = MadeUpJob(run, key, **options).submit()
    job.become(priority=priority)
    return job


def pass_it(run: MadeUpRun, seconds: float = 3.0, *, topic: str = "mail", worse: int = 0) -> None:
    """A better job waits, and a worse one is claimed. Then it is claimed itself."""
    better = job(run, "better", 5, topic=topic)
    run.wait(int(seconds * SECOND))
    job(run, "worse", worse).run("worker-1")
    better.run("worker-1")


@pytest.mark.parametrize("topic", ["mail", "report"])
def test_start_before_a_better_job_of_any_topic_of_the_worker_is_noticed(run: MadeUpRun, topic: str) -> None:
    pass_it(run, topic=topic)
    assert broken(run) == {BROKEN}


def test_handover_before_a_better_job_is_noticed(run: MadeUpRun) -> None:
    better = job(run, "better", 5)
    run.wait(3 * SECOND)
    MadeUpJob(run, "worse").submit(to="worker-1").execute()
    better.run("worker-1")
    assert broken(run) == {BROKEN}


def test_better_job_that_was_ready_for_a_moment_may_be_passed(run: MadeUpRun) -> None:
    pass_it(run, 1.5)
    assert broken(run) == set()


def test_better_job_of_a_topic_that_the_worker_does_not_take_may_be_passed(run: MadeUpRun) -> None:
    pass_it(run, topic="other")
    assert broken(run) == set()


def test_better_job_that_is_claimed_by_the_same_statement_was_not_passed(run: MadeUpRun) -> None:
    better = job(run, "better", 5)
    run.wait(3 * SECOND)
    worse = job(run, "worse")
    began_at = run.at
    worse.run("worker-1")
    better.run("worker-1")
    for place, change in enumerate(run.changes):
        if change.at >= began_at and change.new and change.new.status == "RUNNING":
            run.changes[place] = change._replace(statement_at=began_at)
    assert broken(run) == set()


def test_job_that_became_better_counts_from_then_on(run: MadeUpRun) -> None:
    better = job(run, "better")
    run.wait(3 * SECOND)
    better.become(priority=5)
    job(run, "worse").run("worker-1")
    better.run("worker-1")
    assert broken(run) == set()


def test_job_whose_row_is_locked_may_be_passed(run: MadeUpRun) -> None:
    better = job(run, "better", 5)
    run.write("nemesis", "fault", kind="rows", target="rows-1", ids=[better.id])
    run.wait(3 * SECOND)
    job(run, "worse").run("worker-1")
    run.write("nemesis", "healed", kind="rows", target="rows-1")
    better.run("worker-1")
    assert broken(run) == set()


def test_rows_of_others_that_are_locked_excuse_nothing(run: MadeUpRun) -> None:
    run.write("nemesis", "fault", kind="rows", target="rows-1", ids=["another"])
    pass_it(run)
    assert broken(run) == {BROKEN}


@pytest.mark.parametrize(
    "target", ["postgres", "pulsed-1", "worker-1", "worker-1~pulsed", "pulsed-1~postgres"]
)
def test_fault_on_the_way_to_the_worker_excuses(run: MadeUpRun, target: str) -> None:
    run.write("nemesis", "fault", kind="cut", target=target)
    run.wait(SECOND)
    run.write("nemesis", "healed", kind="cut", target=target)
    pass_it(run, 2.1)
    assert broken(run) == set()


@pytest.mark.parametrize("target", ["pulsed-2", "worker-2", "pulsed-2~postgres"])
def test_fault_of_another_server_or_worker_excuses_nothing(run: MadeUpRun, target: str) -> None:
    began(run, "worker-2", "pulsed-2", ["mail"])
    run.write("nemesis", "fault", kind="cut", target=target)
    run.wait(SECOND)
    run.write("nemesis", "healed", kind="cut", target=target)
    pass_it(run, 2.1)
    assert BROKEN in broken(run)


@pytest.mark.parametrize(("seconds", "expected"), [(5.0, set()), (7.0, {BROKEN})])
def test_slow_database_delays_the_bound_by_two_statements(
    run: MadeUpRun, seconds: float, expected: set[tuple[str, str]]
) -> None:
    run.write("nemesis", "fault", kind="slow", target="postgres", seconds=2.0)
    pass_it(run, seconds)
    assert broken(run) == expected


def test_process_without_cpu_time_delays_the_bound(run: MadeUpRun) -> None:
    better = job(run, "better", 5)
    run.wait(3 * SECOND)
    run.write("pulsed-1", "stalled", seconds=1.0)
    job(run, "worse").run("worker-1")
    better.run("worker-1")
    assert broken(run) == set()


def test_process_that_was_frozen_delays_no_bound(run: MadeUpRun) -> None:
    better = job(run, "better", 5)
    run.freeze("worker-9")
    run.wait(3 * SECOND)
    run.thaw("worker-9")
    run.write("worker-9", "stalled", seconds=3.0)
    job(run, "worse").run("worker-1")
    better.run("worker-1")
    assert broken(run) == {BROKEN}


def test_job_of_a_paused_topic_may_be_passed(run: MadeUpRun) -> None:
    better = job(run, "better", 5, topic="report")
    run.pause("report")
    run.wait(3 * SECOND)
    job(run, "worse").run("worker-1")
    run.resume("report")
    better.run("worker-1")
    assert broken(run) == set()


def test_job_of_a_topic_with_limits_may_be_passed_by_jobs_of_others(run: MadeUpRun) -> None:
    made_up = MadeUpLimits(run)
    made_up.limit("report", limit=1)
    run.wait(3 * SECOND)
    pass_it(run, topic="report")
    assert broken(run) == set()


@pytest.mark.parametrize(
    ("entries", "expected"),
    [({}, {BROKEN}), ({"laned": True}, set()), ({"ages": True}, set()), ({"ordered": True}, set())],
)
def test_within_a_topic_with_limits_the_best_starts_first_if_priorities_decide(
    run: MadeUpRun, entries: dict[str, bool], expected: set[tuple[str, str]]
) -> None:
    MadeUpLimits(run).limit("mail", limit=5, **entries)
    run.wait(3 * SECOND)
    pass_it(run)
    assert broken(run) == expected


def test_later_job_that_starts_while_an_earlier_one_has_waited_for_long_is_noticed(run: MadeUpRun) -> None:
    began(run, "worker-2", "pulsed-1", ["report"])
    earlier = job(run, "earlier")
    busy = MadeUpJob(run, "busy").submit().claim("worker-1").beat().start()
    for _ in range(14):
        run.wait(SECOND)
        busy.beat()
    busy.end().complete()
    later = job(run, "later").run("worker-1")
    earlier.run("worker-1")
    assert later.now.status == "COMPLETED"
    assert broken(run) == {LATE}
