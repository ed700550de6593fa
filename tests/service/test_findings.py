"""The rules of attention: what is found, in which sentence, and in which order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pulse_server.dispatch.rules import ConnectedWorker, Pause, WorkerFacts
from pulse_server.topics.rules import Limits
from pulse_server.views.attention import (
    ENOUGH_ATTEMPTS,
    FLOOD_JOBS,
    OLD_READY,
    SCHEDULER_LATE,
    SCHEDULER_VERY_LATE,
    TAKEN_OVER_LATELY,
    VERY_OLD_READY,
    WORKERS_AWAY,
    Finding,
    FullestLane,
    TopicFacts,
    about_queue,
    about_topic,
    about_workers,
    ordered,
)
from pulse_server.views.servers import HeldJob, Holding, WorkerReport
from pulse_server.views.statistics import Rates, TopicDepth, TopicRates
from pulse_server.views.vitals import LongRuns
from tests.rows import each_row

NOW = datetime(2024, 5, 6, 9, 0, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def facts(
    topic: str = "mail", *, ready: int = 0, age: timedelta | None = None, workers: int = 1, **more: Any
) -> TopicFacts:
    oldest = None if age is None else NOW - age
    return TopicFacts(TopicDepth(topic, ready, oldest_ready_at=oldest), workers=workers, **more)


def found(*topics: TopicFacts) -> list[Finding]:
    return ordered(finding for topic in topics if (finding := about_topic(topic, NOW)) is not None)


def lately(**counts: int) -> TopicRates:
    return TopicRates(lately=Rates(**counts))


def test_quiet_topic_has_no_finding() -> None:
    assert found(facts(ready=100_000, age=OLD_READY - SECOND), facts(ready=5, age=SECOND)) == []


# --- what waits


@each_row("age, is_urgent", [(OLD_READY, False), (VERY_OLD_READY, True)])
def test_topic_that_falls_behind_is_found(age: timedelta, is_urgent: bool) -> None:
    (finding,) = found(facts(ready=7, age=age))

    assert (finding.kind, finding.is_urgent, finding.topic) == ("old", is_urgent, "mail")
    assert "7 jobs are ready" in finding.sentence


@each_row(
    "limits, reason",
    [
        (Limits("mail", {"running": 5}, 5), "is at its limit"),
        (Limits("mail", {"running": 5, "pool": "gpu"}, 5), "waits for its pool gpu"),
        (Limits("mail", {"running": 5}, 1, next_start_at=NOW + SECOND), "has spent its rate"),
        (Limits("mail", {"running": 5}, 1, closed_until=NOW + SECOND), "is held"),
        (Limits("mail", {"turns": True}, 1, lanes_are_full=True), "has no lane that may start a job"),
        (Limits("mail", {"running": 5}, 1), "is falling behind"),
    ],
)
def test_limit_explains_what_waits_and_does_no_harm(limits: Limits, reason: str) -> None:
    (finding,) = found(facts(ready=7, age=VERY_OLD_READY, limits=limits))

    assert finding.sentence.startswith(f"{reason}: its oldest ready job has waited 15m")
    is_behind = reason == "is falling behind"
    assert (finding.is_urgent, finding.harm > 0) == (is_behind, is_behind)


def test_ready_jobs_without_a_worker_are_urgent() -> None:
    (finding,) = found(facts(ready=1, workers=0, age=3 * MINUTE))

    assert finding.is_urgent
    assert finding.sentence == "has 1 ready job and no worker, for 3m."


def test_worker_has_time_to_reconnect() -> None:
    assert found(facts(ready=1, workers=0, age=WORKERS_AWAY - SECOND)) == []


def test_paused_topic_shows_who_paused_it_and_its_waiting_jobs() -> None:
    pause = Pause("the bank is down", NOW - 4 * MINUTE, "ada")
    (finding,) = found(facts(ready=1200, workers=0, age=VERY_OLD_READY, pause=pause))

    assert not finding.is_urgent
    assert finding.sentence == ("has been paused for 4m by ada (the bank is down); 1,200 ready jobs wait.")


def test_pause_of_everything_explains_what_waits() -> None:
    assert found(facts(ready=1, workers=0, age=VERY_OLD_READY, is_dispatched=False)) == []
    (finding,) = about_queue(3, Pause("", NOW - 60 * MINUTE), timedelta(0), None, NOW)
    assert not finding.is_urgent
    assert finding.sentence == "Everything has been paused for 1h; 3 ready jobs wait."


# --- failures


def test_jobs_that_are_dead_lettered_now_are_urgent() -> None:
    (finding,) = found(facts(rates=lately(failed=895, dead_lettered=895)))

    assert finding.is_urgent
    assert finding.sentence.startswith("dead-lettered 895 jobs in the last 5 min; fails 100% of its attempts")


def test_dead_letters_of_the_last_hour_are_a_warning_without_harm() -> None:
    (finding,) = found(facts(rates=TopicRates(last_hour=Rates(0, 0, 3, 3))))

    assert (finding.is_urgent, finding.harm) == (False, 0)
    assert finding.sentence == "dead-lettered 3 jobs in the last hour."


@each_row("failed, is_urgent", [(10, False), (50, True)])
def test_topic_that_fails_often_is_found(failed: int, is_urgent: bool) -> None:
    (finding,) = found(facts(rates=TopicRates(last_hour=Rates(100, 100 - failed, failed))))

    assert finding.is_urgent is is_urgent
    assert finding.sentence == f"fails {failed}% of its attempts: {failed} of 100 in the last hour."


def test_few_attempts_make_no_rate() -> None:
    assert found(facts(rates=TopicRates(last_hour=Rates(failed=ENOUGH_ATTEMPTS - 1)))) == []


# --- runs, lanes, workers, the queue


def test_runs_longer_than_usual_are_found() -> None:
    (finding,) = found(facts(long_runs=LongRuns(2, 14 * MINUTE, 2 * SECOND)))

    assert finding.sentence == "has 2 runs longer than usual, up to 14m: 99 of 100 take at most 2s."


@each_row("jobs, is_found", [(FLOOD_JOBS, True), (FLOOD_JOBS - 1, False)])
def test_lane_with_most_of_the_waiting_jobs_is_found(jobs: int, is_found: bool) -> None:
    lane = FullestLane("acme", jobs, jobs + 10)

    assert bool(found(facts(fullest_lane=lane))) is is_found
    assert not found(facts(fullest_lane=replace(lane, total=2 * jobs)))


def test_lane_of_a_long_backlog_is_judged_by_the_jobs_that_were_counted() -> None:
    (finding,) = found(facts(fullest_lane=FullestLane("acme", 90_000, 100_000, has_more=True)))

    assert finding.sentence == ("has 90,000 of the first 100,000 waiting jobs in the lane acme.")


def held(worker: str, count: int, left: timedelta) -> WorkerReport:
    job = HeldJob("id", "mail", worker, 1, NOW, NOW + left)
    return WorkerReport(worker, Holding(count, (job,) * count))


def test_worker_that_is_gone_with_jobs_is_found() -> None:
    (finding,) = about_workers([held("w-1", 2, 20 * SECOND)], NOW)

    assert finding.worker_id == "w-1"
    assert finding.sentence == (
        "holds 2 jobs but is not connected. They are reaped within 20s, unless it reconnects."
    )


RECYCLED = "was replaced: it takes 160 MiB of memory, more than 150 MiB"
KILLED = "was killed by SIGKILL, by the kernel for want of memory or by hand"


def successor(number: int, last_exit: str, age: timedelta, host: str = "host-1") -> WorkerReport:
    facts = WorkerFacts(host, last_exit=last_exit)
    worker = ConnectedWorker(f"w-{number}", ("mail",), 5, NOW - age, facts=facts)
    return WorkerReport(worker.worker_id, Holding(), worker)


def test_worker_that_was_replaced_for_memory_is_found_for_a_while() -> None:
    (finding,) = about_workers([successor(1, RECYCLED, 4 * MINUTE)], NOW)

    assert (finding.kind, finding.worker_id, finding.is_urgent) == ("memory", "w-1", False)
    assert finding.sentence == (
        "connected 4m ago in place of a process that was replaced: it takes 160 MiB of memory, "
        "more than 150 MiB."
    )
    assert not list(about_workers([successor(1, RECYCLED, TAKEN_OVER_LATELY + SECOND)], NOW))
    assert not list(about_workers([successor(1, "was replaced: it has done 100 jobs", MINUTE)], NOW))


def test_host_whose_workers_were_all_replaced_for_memory_is_one_finding_until_they_end() -> None:
    workers = [successor(number, RECYCLED, timedelta(days=number)) for number in (1, 2, 3)]

    (finding,) = about_workers([*workers, successor(4, RECYCLED, 60 * MINUTE, "host-2")], NOW)

    assert finding.worker_id == "w-1"
    assert finding.sentence.startswith("connected 1d ago in place of a process")
    assert finding.sentence.endswith(" So did 2 other workers of its host.")


def test_process_that_was_killed_for_memory_does_harm_and_one_that_stopped_does_none() -> None:
    late = facts(ready=1, workers=0, age=5 * MINUTE)
    killed = about_workers([successor(1, KILLED, MINUTE)], NOW)
    replaced = about_workers([successor(2, RECYCLED, MINUTE, "host-2")], NOW)

    assert [finding.kind for finding in ordered([*replaced, *found(late), *killed])] == [
        *("memory", "starving", "memory")
    ]


@each_row("late, is_urgent", [(SCHEDULER_LATE, False), (SCHEDULER_VERY_LATE, True)])
def test_late_scheduler_is_found(late: timedelta, is_urgent: bool) -> None:
    (finding,) = about_queue(0, None, late, None, NOW)

    assert (finding.kind, finding.is_urgent) == ("scheduler", is_urgent)


def test_full_disk_is_found() -> None:
    (finding,) = about_queue(0, None, SECOND, NOW - 2 * MINUTE, NOW)

    assert finding.sentence == "The database's disk is full, for 2m: nothing can be stored."


# --- order


def test_most_harmful_topic_comes_first_and_each_topic_once() -> None:
    dying = facts("payments", ready=3, age=VERY_OLD_READY, rates=lately(failed=895, dead_lettered=895))
    failing = facts("mail", rates=lately(completed=10, failed=100))
    behind = facts("reports", ready=200_000, age=2 * 60 * MINUTE)
    waiting = [facts(f"t{number}", ready=1, workers=0, age=VERY_OLD_READY) for number in range(9)]
    paused = facts("bulk", ready=10**6, pause=Pause("", NOW))

    result = found(*waiting, paused, behind, failing, dying)

    assert [finding.topic for finding in result][:3] == ["payments", "reports", "mail"]
    assert result[-1].topic == "bulk"
    assert len(result) == 13


def test_trouble_of_the_whole_queue_comes_before_topics() -> None:
    full = list(about_queue(0, Pause("", NOW), SCHEDULER_LATE, NOW, NOW))
    dying = found(facts(rates=lately(dead_lettered=10_000)))

    kinds = [finding.kind for finding in ordered([*dying, *full])]
    assert kinds == ["full", "paused", "dead", "scheduler"]


def test_old_backlog_that_no_longer_grows_weighs_less_than_a_new_one() -> None:
    old = facts("old", ready=1000, workers=0, age=timedelta(days=3))
    new = facts("new", ready=100, workers=0, age=5 * MINUTE)

    assert [finding.topic for finding in found(old, new)] == ["new", "old"]
