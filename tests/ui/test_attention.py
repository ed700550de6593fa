from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from pulse import (
    Concurrency,
    DispatchStatus,
    FlowPolicy,
    Rates,
    SchedulerStatus,
    TopicInfo,
    TopicLimits,
    TopicPause,
    WorkerInfo,
)
from pulse_ui.views.overview.attention import (
    ENOUGH_ATTEMPTS,
    OLD_READY,
    SCHEDULER_LATE,
    SCHEDULER_VERY_LATE,
    VERY_OLD_READY,
    WORKERS_AWAY,
    behind,
    findings,
)
from pulse_ui.views.overview.findings import MOST_OF_A_KIND, Finding, Severity, summarized
from tests.rows import each_row
from tests.ui.topics import NOW, ON_TIME, OPEN, connected_worker, gone_worker, topic

SECOND = timedelta(seconds=1)


def found(
    *topics: TopicInfo,
    workers: tuple[WorkerInfo, ...] = (),
    dispatch: DispatchStatus | None = OPEN,
    scheduler: SchedulerStatus | None = ON_TIME,
) -> list[Finding]:
    return findings(topics, workers, dispatch, scheduler, NOW)


def test_a_quiet_queue_has_no_findings() -> None:
    assert found(topic(ready=5, age=SECOND), workers=(connected_worker("w", "email"),)) == []


def test_hidden_facts_make_no_findings() -> None:
    assert findings([], [], None, None, NOW) == []


# ---------------------------------------------------------------- what waits


@each_row("age, severity", [(OLD_READY, Severity.WARNING), (VERY_OLD_READY, Severity.PROBLEM)])
def test_a_topic_that_falls_behind_is_found(age: timedelta, severity: Severity) -> None:
    (finding,) = found(topic(ready=7, age=age))

    assert (finding.severity, finding.subject) == (severity, "email")
    assert "7 jobs are ready" in finding.sentence
    assert finding.path == "/jobs?topic=email&status=PENDING"


@each_row(
    "running, held_until, next_start_at, reason",
    [
        (5, None, None, "is at its limit"),
        (1, None, NOW + SECOND, "has spent its rate"),
        (1, NOW + SECOND, None, "is held"),
        (1, None, None, "is falling behind"),
    ],
)
def test_a_limit_explains_what_waits(
    running: int, held_until: datetime | None, next_start_at: datetime | None, reason: str
) -> None:
    late = topic(ready=7, age=VERY_OLD_READY)
    policy = FlowPolicy(limit=Concurrency(5))
    limits = {"email": TopicLimits("email", policy, running, held_until, next_start_at)}
    assert behind([late, topic(ready=7, age=SECOND)], NOW) == ["email"]
    (finding,) = findings([late], (), OPEN, ON_TIME, NOW, limits)

    assert reason in finding.sentence
    assert "7 jobs are ready" in finding.sentence
    is_limited = reason != "is falling behind"
    assert finding.severity is (Severity.WARNING if is_limited else Severity.PROBLEM)
    assert (finding.path == "/limits?topic=email") is is_limited


def test_a_young_backlog_is_not_a_finding() -> None:
    assert found(topic(ready=100_000, age=OLD_READY - SECOND)) == []


def test_ready_jobs_without_a_worker_are_a_problem() -> None:
    (finding,) = found(topic(ready=1, workers=0, age=timedelta(minutes=3)))

    assert finding.severity is Severity.PROBLEM
    assert finding.sentence == "has 1 ready job and no worker, for 3 min."


def test_a_worker_has_time_to_reconnect() -> None:
    assert found(topic(ready=1, workers=0, age=WORKERS_AWAY - SECOND)) == []


def test_the_names_of_topics_are_quoted_in_addresses() -> None:
    (finding,) = found(topic("a&status=x/é", ready=1, age=OLD_READY))

    assert finding.path == "/jobs?topic=a%26status%3Dx%2F%C3%A9&status=PENDING"


# ---------------------------------------------------------------- pauses


def test_a_paused_topic_shows_its_waiting_jobs() -> None:
    dispatch = replace(OPEN, topics={"email": TopicPause("", NOW - timedelta(minutes=4))})

    (finding,) = found(topic(ready=1_200, workers=0, age=VERY_OLD_READY, paused=True), dispatch=dispatch)

    assert finding.severity is Severity.WARNING
    assert finding.sentence == "has been paused for 4 min; 1,200 ready jobs wait."


def test_a_pause_of_everything_explains_what_waits() -> None:
    dispatch = replace(OPEN, paused=True, paused_at=NOW - timedelta(hours=1))

    (finding,) = found(topic(ready=1, age=VERY_OLD_READY), topic("b", ready=2, workers=0), dispatch=dispatch)

    assert finding.severity is Severity.PROBLEM
    assert finding.sentence == "Everything has been paused for 1 h; 3 ready jobs wait."


# ---------------------------------------------------------------- failures


def test_jobs_dead_lettered_in_the_last_hour_are_a_warning() -> None:
    (finding,) = found(topic(dead_lettered=9, last_hour=Rates(0, 0, 3, 3)))

    assert finding.severity is Severity.WARNING
    assert finding.sentence == "dead-lettered 3 jobs in the last hour."


def test_jobs_that_die_now_are_a_problem() -> None:
    (finding,) = found(topic(last_hour=Rates(0, 0, 3, 3), last_minute=Rates(0, 0, 2, 2)))

    assert finding.severity is Severity.PROBLEM
    assert "2 of them in the last minute" in finding.sentence


def test_old_dead_letters_are_not_a_finding() -> None:
    assert found(topic(dead_lettered=1_000)) == []


@each_row("failed, severity", [(10, Severity.WARNING), (50, Severity.PROBLEM)])
def test_a_topic_that_fails_often_is_found(failed: int, severity: Severity) -> None:
    (finding,) = found(topic(last_hour=Rates(100, 100 - failed, failed, 0)))

    assert finding.severity is severity
    assert finding.sentence == f"fails {failed}% of its attempts: {failed} of 100 in the last hour."


def test_few_attempts_make_no_rate() -> None:
    failed = ENOUGH_ATTEMPTS - 1

    assert found(topic(last_hour=Rates(failed, 0, failed, 0))) == []


# ---------------------------------------------------------------- scheduler and workers


@each_row("late, severity", [(SCHEDULER_LATE, Severity.WARNING), (SCHEDULER_VERY_LATE, Severity.PROBLEM)])
def test_a_late_scheduler_is_found(late: timedelta, severity: Severity) -> None:
    (finding,) = found(scheduler=replace(ON_TIME, late_seconds=late.total_seconds()))

    assert (finding.severity, finding.path) == (severity, "/schedules")


def test_a_scheduler_that_is_a_moment_late_is_in_time() -> None:
    assert found(scheduler=replace(ON_TIME, late_seconds=1.0)) == []


def test_a_worker_that_is_gone_with_jobs_is_found() -> None:
    (finding,) = found(workers=(gone_worker("w-1", 2, timedelta(seconds=20)),))

    assert finding.subject == "w-1"
    assert finding.sentence == (
        "holds 2 jobs but is not connected. They are reaped within 20 s, unless it reconnects."
    )


def test_a_worker_that_is_connected_is_not() -> None:
    assert found(workers=(connected_worker("w", held=3),)) == []


# ---------------------------------------------------------------- order


def test_problems_come_before_warnings_and_the_oldest_first() -> None:
    result = found(
        topic("slow", ready=1, age=OLD_READY),
        topic("starving", ready=1, workers=0, age=timedelta(minutes=1)),
        topic("starving-longer", ready=1, workers=0, age=timedelta(minutes=5)),
    )

    assert [finding.subject for finding in result] == ["starving-longer", "starving", "slow"]


def test_every_finding_has_a_key_of_its_own() -> None:
    bad = Rates(0, 0, 100, 100)
    result = found(*(topic(name, ready=1, age=VERY_OLD_READY, last_hour=bad) for name in "abc"))

    assert len({finding.key for finding in result}) == len(result) == 9


def test_too_many_of_a_kind_become_one_and_hide_no_other_kind() -> None:
    starving = [topic(f"t{number:02}", ready=1, workers=0, age=timedelta(minutes=1)) for number in range(50)]
    dying = topic("dying", last_hour=Rates(0, 0, 1, 1), last_minute=Rates(0, 0, 1, 1))

    shown = summarized(found(*starving, dying))

    assert len(shown) == MOST_OF_A_KIND + 1
    assert shown[MOST_OF_A_KIND - 1].sentence == "47 more topics have ready jobs and no worker."
    assert shown[-1].subject == "dying"


def test_many_topics_that_wait_for_their_limits_become_one() -> None:
    late = [topic(f"t{number}", ready=1, age=OLD_READY) for number in range(MOST_OF_A_KIND + 3)]
    full = FlowPolicy(limit=Concurrency(1))
    limits = {one.topic: TopicLimits(one.topic, full, 1, None, None) for one in late}
    shown = summarized(findings(late, (), OPEN, ON_TIME, NOW, limits))

    assert "4 more topics wait for their limits." in [one.sentence for one in shown]


def test_a_few_of_a_kind_are_listed_one_by_one() -> None:
    few = found(*(topic(name, ready=1, age=OLD_READY) for name in "abcd"))

    assert summarized(few) == few
