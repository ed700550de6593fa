"""The story of a violation has the events of its job and of the workers that held it, and no others."""

from __future__ import annotations

import pytest

from faults.changes import ILLEGAL, JobChange, JobState, verb_of
from faults.checker import check
from faults.story import describe
from faults.tests.made_up.jobs import LEASE, MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.schedules import MadeUpSchedule
from pulse_server.jobs.rules import INITIAL, LEGAL_TRANSITIONS, JobStatus


@pytest.fixture
def run() -> MadeUpRun:
    return MadeUpRun()


def the_story(run: MadeUpRun) -> list[str]:
    """The table of the only violation: each line without its time, the violating one marked."""
    (violation,) = check(run.evidence()).violations
    table = describe(run.evidence(), violation).splitlines()[2:]
    words = [line.split() for line in table]
    return [" ".join([">>", *line[2:]] if line[0] == ">>" else line[1:]) for line in words]


def test_story_is_the_life_of_the_job_in_the_order_of_time(run: MadeUpRun) -> None:
    MadeUpJob(run, "another").submit().run("worker-3")
    job = MadeUpJob(run).submit().claim("worker-1").start()
    MadeUpJob(run, "one more").submit().run("worker-2")
    job.end().complete().start()
    lines = the_story(run)
    assert [line.split()[1] for line in lines[:-1]] == [
        *("submit", "insert", "submitted", "claim", "started", "ended", "complete")
    ]
    assert lines[3].startswith("database claim RUNNING, attempt 1 of 3, run 1, held by worker-1 until +")
    assert lines[-1] == ">> worker-1 started attempt 1, run 1"


def test_story_marks_the_change_at_which_it_shows(run: MadeUpRun) -> None:
    MadeUpJob(run).submit().run("worker-1", "failed").run("worker-2")
    marked = [line for line in the_story(run) if line.startswith(">>")]
    assert len(marked) == 1
    assert marked[0].startswith(">> database claim RUNNING, attempt 2 of 3, run 2, held by worker-2 until")


def test_beats_in_a_row_are_one_line(run: MadeUpRun) -> None:
    job = MadeUpJob(run).submit().claim("worker-1").start()
    for _ in range(7):
        run.wait(LEASE // 2)
        job.beat()
    job.complete()
    assert [line.split("RUNNING")[0] for line in the_story(run) if "beat" in line] == ["database beat, 7th "]


def test_story_has_the_faults_of_the_workers_that_took_part(run: MadeUpRun) -> None:
    MadeUpJob(run, "another").submit().run("worker-3")
    job = MadeUpJob(run).submit().claim("worker-1")
    for target in ("worker-1", "worker-2", "worker-3", "pulsed-1 to worker-3", "pulsed-1 to postgres"):
        run.write("nemesis", "fault", kind="kill", target=target)
    job.expire().promote().run("worker-2")
    run.wait(LEASE)
    job.start("worker-1", 1)
    run.write("nemesis", "fault", kind="kill", target="worker-1")
    assert [line for line in the_story(run) if "nemesis" in line] == [
        "nemesis fault kill worker-1",
        "nemesis fault kill worker-2",
        "nemesis fault kill pulsed-1 to postgres",
    ]


def test_story_of_a_doubled_job_has_both(run: MadeUpRun) -> None:
    MadeUpJob(run).submit().run("worker-1")
    MadeUpJob(run).insert().run("worker-2")
    assert len([line for line in the_story(run) if line.startswith("database insert")]) == 2


def test_story_of_a_schedule_shows_where_its_cursor_went(run: MadeUpRun) -> None:
    MadeUpSchedule(run).fire()
    schedule = MadeUpSchedule(run)
    schedule.fire()
    schedule.step(schedule.following(), is_fired=False)
    lines = the_story(run)
    assert [line.split(",")[0].split(" +")[0] for line in lines] == [
        "database made – →",
        "database step",
        ">> database step",
    ]


def test_story_of_a_pause_shows_its_changes_and_requests(run: MadeUpRun) -> None:
    job = MadeUpJob(run).submit()
    run.pause("mail")
    job.run("worker-1")
    lines = the_story(run)
    assert lines[3:6] == ["client pause mail", "database paused mail", "client pause_done mail"]
    assert lines[6].startswith(">> database claim")


def test_verdict_lists_each_invariant_and_two_stories_for_each_broken_rule(run: MadeUpRun) -> None:
    for number in range(5):
        MadeUpJob(run, f"k-{number}").submit(is_stored=False)
    text = str(check(run.evidence()))
    assert "none is lost, none doubled: BROKEN 5 times" in text
    assert "I2  at most one valid lease at a time: holds" in text
    assert text.count("was never in the table") == 2


def test_verbs_are_the_legal_arrows_of_the_domain() -> None:
    def state(status: str) -> JobState:
        return JobState(status, 1, 1, 3, None, None, False, True, None)

    def is_legal(old: JobState | None, new: JobState) -> bool:
        outcome = "failed" if old and old.status == "RUNNING" else None
        change = JobChange(1, 1, 1, 1, "j", "mail", None, None, outcome, old, new)
        return verb_of(change) != ILLEGAL

    assert {status for status in JobStatus if is_legal(None, state(status))} == INITIAL
    for old in JobStatus:
        legal = {new for new in JobStatus if is_legal(state(old), state(new))}
        assert legal - {old} == LEGAL_TRANSITIONS[old]
