"""Why a job does not run, in words: what needs no database to be staged."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pulse_server.base import tuning
from pulse_server.dispatch.rules import QUIET, STOPPING, WorkerState
from pulse_server.views.explanations import explain_job, explain_topic
from pulse_server.views.gates import Ahead, Explanation, JobFacts, TopicWorkers, clock, cut, span
from tests.rows import each_row

NOW = datetime(2026, 3, 2, 9, 12, tzinfo=UTC)
SECOND, HEARTBEAT, LEASE = timedelta(seconds=1), timedelta(seconds=10), timedelta(seconds=30)
READY = JobFacts(NOW, "mail", "job-1", "PENDING", queued=True, is_ready=True, next_run_at=NOW)
FULL = TopicWorkers(2, 10, 0, [("mail", 6), ("sms", 4)])
FREE = TopicWorkers(2, 10, 3)
MINUTES = 60 * SECOND
ONE_IN_TEN_MINUTES = {"running": 0, "starts": 1, "period": 10 * MINUTES, "rate_free_at": NOW + 5 * MINUTES}


def explain(job: JobFacts, workers: TopicWorkers = FULL, ahead: Ahead | None = None) -> Explanation:
    return explain_job(job, workers, ahead, HEARTBEAT, LEASE)


def test_number_of_jobs_ahead_is_bounded() -> None:
    found = explain(READY, ahead=Ahead(1000, True, [("urgent", 900), ("mail", 100)]))
    assert found.cause == "outranked"
    assert found.brief == "behind more than 1,000 jobs"
    assert found.sentence.startswith(
        "More than 1,000 jobs come first, by priority or age: 900 of urgent, 100 of"
    )


def test_job_that_waits_for_many_names_a_few() -> None:
    parents = [(f"id-{number}", f"extract-{number}", "PENDING") for number in range(4)]
    found = explain(replace(READY, held=True, is_ready=False, parents_left=7, parents=parents))
    assert found.sentence.startswith("It waits for 7 jobs of its workflow: extract-0 (PENDING), ")
    assert found.sentence.endswith("extract-3 (PENDING), 3 more.")
    assert found.remedy.endswith("pulse jobs explain id-0")


def test_frozen_worker_is_named_instead_of_the_advice_to_add_workers() -> None:
    found = explain(READY, TopicWorkers(1, 1, 0, [("mail", 1)], frozen=1))
    assert (found.cause, found.brief) == ("workers_full", "workers full: 1 of 1, 1 may be frozen")
    assert "1 worker may be frozen: a lease expired during the connection." in found.sentence
    assert found.remedy == "Restart its workers if they hang: their logs show it."


@each_row(
    "state, words",
    [
        ({"unread": 1}, "1 worker did not read the last jobs yet."),
        ({"closing": 1}, "1 worker is about to leave."),
        ({"closing": 2}, "2 workers are about to leave."),
        ({}, "They have no slots, as while they stop."),
    ],
)
def test_workers_that_take_no_jobs_are_explained(state: dict[str, int], words: str) -> None:
    found = explain(READY, TopicWorkers(2, 0, 0, **state))
    assert (found.cause, found.brief) == ("workers_full", "workers take no jobs")
    assert words in found.sentence


def test_topics_that_are_not_all_known_are_no_missing_worker() -> None:
    unlisted = TopicWorkers(unlisted=2)
    found = explain(READY, unlisted)
    assert (found.cause, found.brief) == ("", "its workers are not known")
    assert "2 workers of other servers take more topics than are listed" in found.sentence
    topic = JobFacts(NOW, "mail")
    assert explain_topic(topic, unlisted, None).brief == "its workers are not known"
    assert explain_topic(topic, TopicWorkers(), None).cause == "no_worker"


def test_job_behind_others_of_its_lane_is_outranked() -> None:
    found = explain(replace(READY, laned=True, lane="acme", lane_free=1, ahead_in_lane=3, turns_before=2))
    assert (found.cause, found.brief) == ("outranked", "behind 3 jobs of its lane")


def test_ready_job_that_no_server_claims_is_overdue() -> None:
    assert explain(READY, FREE).cause == ""
    found = explain(replace(READY, next_run_at=NOW - timedelta(minutes=2)), FREE)
    assert (found.cause, found.brief) == ("overdue", "not claimed for 2m")


def test_workers_without_slots_take_no_jobs() -> None:
    assert explain(READY, TopicWorkers(1, 0, 0)).brief == "workers take no jobs"


def test_hold_by_a_handler_is_not_an_operators() -> None:
    found = explain(replace(READY, running=0, held_until=NOW + 90 * SECOND), FREE)
    assert found.sentence == "Its topic is held until 09:13:30 UTC, by a handler."
    assert (found.brief, found.expected_at) == ("topic held for 1m30s", NOW + 90 * SECOND)


def test_pause_shows_who_and_why() -> None:
    paused = replace(READY, paused_at=NOW, paused_by="ada", reason="bank is down")
    found = explain(paused, FREE)
    assert found.sentence == "Its topic has been paused since 09:12:00 UTC by ada: bank is down."
    assert found.brief == "topic paused by ada"
    assert explain_topic(paused, FREE, found).sentence.startswith("The topic has been paused")


def test_wait_with_a_later_hindrance_names_both() -> None:
    later = replace(
        READY, queued=False, is_ready=False, waits=True, next_run_at=NOW + SECOND * 60, paused_at=NOW
    )
    found = explain(later, FREE)
    assert found.cause == "delayed"
    assert found.sentence == "It is delayed until 09:13:00 UTC. Its topic has been paused since 09:12:00 UTC."
    assert found.brief == "runs in 1m; topic paused"
    assert found.remedy == "Resume it: pulse dispatch resume --topic mail"
    assert found.expected_at is None, "a pause has no end"


@each_row(
    "facts, ahead, expected",
    [
        ({}, None, 5 * MINUTES),
        ({}, Ahead(59, False), 595 * MINUTES),
        ({"starts": 20}, Ahead(59, False), 25 * MINUTES),
        ({}, Ahead(1000, True), None),
        ({"pool": "shop"}, Ahead(0, False), 5 * MINUTES),
        ({"pool": "shop"}, Ahead(1, False), None),
        ({"laned": True, "turns_before": 1}, None, None),
        ({"laned": True, "ahead_in_lane": 1}, None, None),
    ],
)
def test_rate_starts_the_jobs_that_come_first(
    facts: dict[str, Any], ahead: Ahead | None, expected: timedelta | None
) -> None:
    found = explain(replace(READY, **ONE_IN_TEN_MINUTES | facts), FREE, ahead)
    assert found.expected_at == (None if expected is None else NOW + expected)
    if ahead is not None and ahead.jobs == 59:
        assert found.sentence.endswith(" 59 jobs come first.")


def test_job_behind_others_of_a_limited_topic_does_not_start_next() -> None:
    found = explain(replace(READY, running=2, limit=2), FREE, Ahead(1000, True))
    assert found.sentence.endswith("which is the limit. More than 1,000 jobs come first.")


@each_row(
    "ahead, more, expected",
    [(0, False, 5 * MINUTES), (7, False, 35 * MINUTES), (1000, True, None)],
)
def test_rate_of_a_lane_starts_the_jobs_that_come_first(
    ahead: int, more: bool, expected: timedelta | None
) -> None:
    facts = {"lane_starts": 2, "lane_started": 2, "lane_period": 10 * MINUTES, "laned": True, "lane": "acme"}
    lane = replace(READY, **facts, lane_free=1, lane_rate_free_at=NOW + 5 * MINUTES)
    found = explain(replace(lane, ahead_in_lane=ahead, has_more_ahead_in_lane=more), FREE)
    assert found.cause == "lane_rate"
    assert found.expected_at == (None if expected is None else NOW + expected)


def test_rate_of_the_topic_that_lasts_longer_than_the_lanes_is_named_with_it() -> None:
    """Following the advice for the lane alone would not start the job."""
    lane = {"lane_starts": 1, "lane_started": 1, "lane_period": 10 * MINUTES, "laned": True, "lane": "acme"}
    hour = {"running": 0, "starts": 2, "period": 60 * MINUTES, "rate_free_at": NOW + 60 * MINUTES}
    both = replace(READY, **lane, **hour, lane_free=1, lane_rate_free_at=NOW + 10 * MINUTES)
    found = explain(both, FREE)
    assert (found.cause, found.expected_at) == ("lane_rate", NOW + 60 * MINUTES)
    assert found.sentence.endswith(" As many jobs of its topic have started as the rate allows, 2 in 1h.")
    assert "--lane-rate RATE; " in found.remedy
    assert found.remedy.endswith("--rate RATE")
    sooner = replace(both, rate_free_at=NOW + 5 * MINUTES)
    assert explain(sooner, FREE).expected_at == NOW + 10 * MINUTES


def test_delay_that_ends_before_a_hold_names_both() -> None:
    delayed = replace(READY, queued=False, is_ready=False, waits=True, next_run_at=NOW + MINUTES)
    found = explain(replace(delayed, running=0, held_until=NOW + 60 * MINUTES), FREE)
    assert (found.cause, found.expected_at) == ("delayed", NOW + 60 * MINUTES)
    assert found.sentence.endswith("Its topic is held until 10:12:00 UTC, by a handler.")


def test_quieted_workers_are_named_with_who_and_why() -> None:
    quiet = [("w1", WorkerState(QUIET, "memory grows", NOW, "ada")), ("w2", WorkerState(STOPPING, "", NOW))]
    found = explain(READY, TopicWorkers(quiet=quiet))
    assert found.sentence == (
        "No worker takes jobs of its topic. w1 has been quiet since 09:12:00 UTC by ada: memory grows. "
        "1 other too."
    )
    assert (found.brief, found.remedy) == (
        "its 2 workers quiet",
        "Let it take jobs again: pulse workers resume w1",
    )


def test_quieted_worker_beside_full_ones_is_named() -> None:
    quiet = [("w1", WorkerState(STOPPING, "", NOW))]
    found = explain(READY, replace(FULL, quiet=quiet))
    assert found.cause == "workers_full"
    assert found.sentence.endswith("w1 has been stopping since 09:12:00 UTC.")
    assert found.remedy.endswith("Let it take jobs again: pulse workers resume w1")
    idle = explain_topic(JobFacts(NOW, "mail"), replace(FREE, quiet=quiet), None)
    assert "w1 has been stopping" in idle.sentence


def test_last_attempt_of_a_gone_worker_ends_as_a_dead_letter() -> None:
    held = replace(
        READY, status="RUNNING", is_ready=False, locked_by="w1", attempts=5, max_attempts=5, started_at=NOW
    )
    gone = explain(replace(held, lease_until=NOW + 18 * SECOND))
    assert (gone.cause, gone.brief) == ("worker_gone", "worker gone, recovered in 18s")
    assert gone.remedy == "It becomes a dead letter when its lease ends, by itself."
    spared = explain(replace(held, lease_until=NOW - SECOND, spared_until=NOW + 40 * SECOND))
    assert spared.expected_at == NOW + 40 * SECOND
    assert explain(replace(held, lease_until=NOW + 25 * SECOND, is_connected=True)).cause == ""


def test_silent_worker_is_recognized_before_its_lease_ends() -> None:
    held = replace(
        READY, status="RUNNING", is_ready=False, locked_by="w1", is_connected=True, attempts=1, max_attempts=5
    )
    heartbeat, lease = tuning.HEARTBEAT_INTERVAL, tuning.LEASE_TTL
    overdue = replace(held, lease_until=NOW + lease - heartbeat - 12 * SECOND)
    found = explain_job(overdue, FULL, None, heartbeat, lease)
    assert (found.cause, found.brief) == ("worker_silent", "worker silent, recovered in 8s")
    assert found.remedy == "It is retried when its lease ends, by itself."
    locked = explain_job(replace(overdue, lease_until=NOW - SECOND), FULL, None, heartbeat, lease)
    assert "another session of the database has its row locked" in locked.sentence
    assert locked.remedy == "It is retried by itself, once its row is not locked."
    in_time = replace(held, lease_until=NOW + lease - heartbeat - SECOND)
    assert explain_job(in_time, FULL, None, heartbeat, lease).cause == ""
    # A server may be set to heartbeats of nearly the length of a lease.
    late = replace(held, lease_until=NOW + SECOND)
    assert explain_job(late, FULL, None, 25 * SECOND, lease).cause == "worker_silent"


def test_wait_after_a_lease_that_expired_before_the_start_names_no_attempt() -> None:
    """Only a start counts as an attempt."""
    later = {"status": "RETRYING", "waits": True, "is_ready": False, "next_run_at": NOW + SECOND}
    found = explain(replace(READY, **later, last_error="worker lease expired"))
    assert found.sentence == (
        "No attempt has counted yet, and the next one is due at 09:12:01 UTC: worker lease expired."
    )


def test_job_whose_limit_has_room_again_is_not_said_to_have_been_claimable_before() -> None:
    due = replace(READY, next_run_at=NOW - MINUTES, limit=5, running=4)
    found = explain(due, FREE)
    assert (found.cause, found.brief) == ("overdue", "due for 1m")
    assert "Limits may have delayed it until now." in found.sentence


def test_lane_whose_slot_is_not_counted_as_free_yet_is_not_at_its_limit() -> None:
    found = explain(replace(READY, lane="acme", laned=True, lane_free=0, lane_limit=1, lane_running=0), FREE)
    assert found.cause == "lane_limit"
    assert found.sentence == "A job of its lane acme has just ended. The next claim counts its slot as free."


def test_dead_letter_shows_its_error_and_the_way_back() -> None:
    dead = replace(
        READY, status="DEAD_LETTERED", finished_at=NOW, attempts=2, last_error="boom", is_ready=False
    )
    found = explain(dead)
    assert found.sentence == "It has been a dead letter since 09:12:00 UTC, after 2 attempts. boom"
    assert found.remedy == "Run it again: pulse jobs retry job-1"


@each_row(
    "length, text",
    [
        (timedelta(milliseconds=400), "400ms"),
        (18 * SECOND, "18s"),
        (timedelta(minutes=3, seconds=57), "3m57s"),
        (timedelta(hours=2), "2h"),
        (timedelta(days=400, hours=1), "400d1h"),
        (-SECOND, "0ms"),
    ],
)
def test_spans_have_two_units_at_the_most(length: timedelta, text: str) -> None:
    assert span(length) == text


def test_moments_of_another_day_have_a_date_and_long_texts_are_cut() -> None:
    assert clock(NOW - timedelta(days=1), NOW) == "2026-03-01 09:12:00 UTC"
    assert cut("x" * 300) == "x" * 199 + "…"
    assert cut("Traceback (most recent call last):\n  File\nValueError: no") == "ValueError: no"
