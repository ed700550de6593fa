"""I25: the checker finds what stops beside many that are locked or fail, or beside a role of others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from faults.bystanders import CROWD_OF_SCHEDULES, CROWD_OF_TOPICS, CROWD_OF_WORKFLOWS, INTRUDER
from faults.changes import LimitEvent, ScheduleChange
from faults.rules import bystanders
from faults.tests.made_up.jobs import MadeUpJob
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.verdicts import broken

SECOND = 1_000_000
LENGTH = 8 * SECOND


@pytest.fixture
def run() -> MadeUpRun:
    run = MadeUpRun()
    run.write("nemesis", "began", target="pulsed-1.1")
    run.wait(SECOND)
    return run


def beside(run: MadeUpRun, kind: str, held: list[str], during: Callable[[], None]) -> None:
    """Let a fault of this kind last for eight seconds, and something happen after three of them."""
    begin = run.at
    run.write("nemesis", "fault", kind=kind, target=f"the target of {kind}", held=held)
    run.wait(3 * SECOND)
    during()
    run.wait_until(begin + LENGTH)
    run.write("nemesis", "healed", kind=kind, target=f"the target of {kind}")
    run.wait(SECOND)


def nothing() -> None:
    """Happen."""


# ---------------------------------------------------------------- operators


@pytest.mark.parametrize(("how", "is_noticed"), [("unknown", True), ("done", False), ("refused", False)])
def test_operators_that_get_no_answer_beside_a_stranger_are_noticed(
    run: MadeUpRun, how: str, is_noticed: bool
) -> None:
    def change() -> None:
        for number in range(4):
            run.answer("settings", run.send("settings", topic=f"topic-{number}"), how, reason="…")

    beside(run, INTRUDER, [], change)
    assert broken(run) == ({("I25", bystanders.OPERATORS_GO_ON)} if is_noticed else set())


def test_operators_that_get_no_answer_while_the_database_is_away_are_not_judged(run: MadeUpRun) -> None:
    run.write("nemesis", "fault", kind="halt", target="postgres")

    def change() -> None:
        for number in range(4):
            run.answer("settings", run.send("settings", topic=f"topic-{number}"), "unknown", reason="…")

    beside(run, INTRUDER, [], change)
    assert broken(run) == set()


# ---------------------------------------------------------------- schedules


def schedule(run: MadeUpRun, name: str, cursor: int, *, fired: bool = False) -> None:
    old = cursor - SECOND if fired else None
    run.schedules.append(
        ScheduleChange(
            run.number(), run.number(), run.at, run.at, name, old, False if fired else None, cursor, False,
            cursor if fired else None, not fired, "interval", None, 60_000, None, "UTC", "skip",
        )
    )  # fmt: skip
    run.wait()


def noticed(run: MadeUpRun) -> set[str]:
    """By this rule alone: other rules judge schedules and limits that are not made up here."""
    return {violation.rule for violation in bystanders.check_bystanders(run.evidence())}


@pytest.mark.parametrize(("fires", "is_noticed"), [("none", True), ("held", True), ("other", False)])
def test_schedules_that_stop_beside_locked_ones_are_noticed(
    run: MadeUpRun, fires: str, is_noticed: bool
) -> None:
    for name in ("held", "other", "another", "a third"):
        schedule(run, name, run.at + SECOND)
    begin = run.at
    fire = nothing if fires == "none" else lambda: schedule(run, fires, begin + 60 * SECOND, fired=True)
    beside(run, CROWD_OF_SCHEDULES, ["held"], fire)
    assert noticed(run) == ({bystanders.SCHEDULES_GO_ON} if is_noticed else set())


# ---------------------------------------------------------------- limited topics


@pytest.mark.parametrize(("claimed", "is_noticed"), [("", True), ("failing", True), ("healthy", False)])
def test_limited_topic_that_starves_beside_failing_ones_is_noticed(
    run: MadeUpRun, claimed: str, is_noticed: bool
) -> None:
    for topic in ("failing", "healthy", "second", "third"):
        run.limits.append(LimitEvent(run.at, run.number(), run.at, "policy", topic, None, None, None, {}))
    jobs = [
        MadeUpJob(run, f"{topic}-{number}", topic=topic).submit()
        for topic in ("failing", "healthy", "second", "third", "plain")
        for number in range(2)
    ]

    def claim() -> None:
        for job in jobs[::2]:
            if job.topic in (claimed, "plain"):
                job.run("worker-1")

    beside(run, CROWD_OF_TOPICS, ["failing"], claim)
    assert noticed(run) == ({bystanders.TOPICS_GO_ON} if is_noticed else set())


def test_topics_that_wait_while_everything_is_paused_are_not_judged(run: MadeUpRun) -> None:
    def change() -> None:
        for number in range(4):
            run.answer("settings", run.send("settings", topic=f"topic-{number}"), "unknown", reason="…")

    run.pause()
    beside(run, INTRUDER, [], change)
    assert noticed(run) == set()


# ---------------------------------------------------------------- nothing to do


@pytest.mark.parametrize("kind", [INTRUDER, CROWD_OF_SCHEDULES, CROWD_OF_TOPICS, CROWD_OF_WORKFLOWS])
def test_run_in_which_nothing_else_was_due_is_no_violation(run: MadeUpRun, kind: str) -> None:
    beside(run, kind, [], nothing)
    assert broken(run) == set()
